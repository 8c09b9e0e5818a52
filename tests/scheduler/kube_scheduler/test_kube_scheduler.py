"""Nodes and scores are those of kube-scheduler, for random clusters and pods with volumes and preferences."""

from collections import Counter, defaultdict

import msgspec
import pytest

from tests.scheduler.kube_scheduler import comparison, oracle, scores
from tests.scheduler.kube_scheduler.clusters import cluster
from tests.scheduler.kube_scheduler.comparison import Difference
from tests.scheduler.kube_scheduler.known_differences import KNOWN_DIFFERENCES, KnownDifference
from tests.scheduler.kube_scheduler.oracle import Expected

pytestmark = pytest.mark.apiserver

CLUSTERS = 3000
NODE_SUBJECTS = {"pod", "feasible", "infeasible", "reason", "resolvable"}


class Compared(msgspec.Struct):
    """What kube-scheduler decides about the clusters, and our differences, by the name of what explains them."""

    expected: list[Expected]
    unexplained: list[Difference]
    explained: defaultdict[str, list[Difference]]


@pytest.fixture(scope="module")
def compared() -> Compared:
    """The comparison of all clusters."""
    made = Compared(oracle.expected(map(cluster, range(CLUSTERS))), [], defaultdict(list))
    for seed, expected in enumerate(made.expected):
        manifest = cluster(seed)
        state = comparison.loaded(manifest)
        found = [*comparison.node_differences(seed, manifest, expected, state)]
        if len(expected.scores) > 1:
            found += scores.score_differences(seed, manifest, expected, state)
            found += scores.order_differences(seed, manifest, expected, state)
        for difference in found:
            names = [each.name for each in KNOWN_DIFFERENCES if each.explains(difference, manifest)]
            (made.explained[names[0]] if names else made.unexplained).append(difference)
    return made


def test_the_same_nodes_take_a_pod(compared: Compared) -> None:
    """Feasible nodes, the plugin that rejects each of the others, and whether that is resolvable, are the same.

    Differences that are not on the list fail, one a line, with the seed of their cluster.
    """
    differences = [each for each in compared.unexplained if each.subject in NODE_SUBJECTS]
    assert not differences, "\n".join(map(str, differences))


def test_scores_and_their_order_are_the_same(compared: Compared) -> None:
    """Each preference scores nodes as kube-scheduler's plugin does; of nodes with like cards the same is the best."""
    differences = [each for each in compared.unexplained if each.subject not in NODE_SUBJECTS]
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("known", KNOWN_DIFFERENCES, ids=lambda each: each.name)
def test_each_known_difference_occurs(compared: Compared, known: KnownDifference) -> None:
    """A difference that is not found any more must be taken off the list."""
    assert compared.explained[known.name], known.reason


def test_clusters_are_diverse(compared: Compared) -> None:
    """Every filter rejects nodes, and every preference distinguishes nodes, of many clusters."""
    rejecting: Counter[str] = Counter()
    distinguishing: Counter[str] = Counter()
    for expected in compared.expected:
        rejecting.update({each.plugin for rejections in expected.nodes.values() for each in rejections})
        for plugin in scores.PLUGINS.values():
            distinguishing[plugin] += len({each.plugins.get(plugin) for each in expected.scores.values()}) > 1
    assert rejecting.keys() == {*comparison.PLUGINS.values()}
    assert min(rejecting.values()) >= CLUSTERS // 100, rejecting
    assert min(distinguishing.values()) >= CLUSTERS // 50, distinguishing
