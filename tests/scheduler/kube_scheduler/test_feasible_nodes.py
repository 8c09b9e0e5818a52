"""The same nodes take a pod as with kube-scheduler, for random clusters and pods with volumes and preferences."""

from collections import Counter, defaultdict

import msgspec
import pytest

from tests.scheduler.kube_scheduler import comparison
from tests.scheduler.kube_scheduler.clusters import cluster
from tests.scheduler.kube_scheduler.comparison import Difference, Expected
from tests.scheduler.kube_scheduler.known_differences import KNOWN_DIFFERENCES, KnownDifference
from tests.scheduler.kube_scheduler.selectors import Manifest

pytestmark = pytest.mark.apiserver

CLUSTERS = 3000
FILTERS = {
    "InterPodAffinity",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}


class Compared(msgspec.Struct):
    """All clusters, what kube-scheduler decides about them, and the differences, by what explains them."""

    clusters: list[Manifest]
    expected: list[Expected]
    unknown: list[Difference]
    known: dict[str, list[Difference]]


@pytest.fixture(scope="module")
def compared() -> Compared:
    """The comparison of all clusters."""
    clusters = [cluster(seed) for seed in range(CLUSTERS)]
    made = Compared(clusters, comparison.expected(clusters), [], defaultdict(list))
    for seed, (manifest, expected) in enumerate(zip(clusters, made.expected, strict=True)):
        for difference in comparison.differences(seed, manifest, expected):
            explanations = [each.name for each in KNOWN_DIFFERENCES if each.explains(difference, manifest)]
            (made.known[explanations[0]] if explanations else made.unknown).append(difference)
    return made


def test_the_same_nodes_take_a_pod(compared: Compared) -> None:
    """Feasible nodes, the plugin that rejects each of the others, and whether that is resolvable, are the same.

    Differences that are not on the list fail, one a line, with the seed of their cluster.
    """
    assert not compared.unknown, "\n".join(map(str, compared.unknown))


@pytest.mark.parametrize("known", KNOWN_DIFFERENCES, ids=lambda each: each.name)
def test_each_known_difference_occurs(compared: Compared, known: KnownDifference) -> None:
    """A difference that is not found any more must be taken off the list."""
    assert compared.known[known.name]


def test_clusters_are_diverse(compared: Compared) -> None:
    """Every filter rejects nodes of many clusters, and in many clusters some nodes take the pod and others do not."""
    rejecting: Counter[str] = Counter()
    mixed = 0
    for expected in compared.expected:
        rejecting.update({each.plugin for rejections in expected.nodes.values() for each in rejections})
        mixed += 0 < len(expected.scores) < len(expected.nodes)
    assert rejecting.keys() >= FILTERS
    assert min(rejecting[name] for name in FILTERS) >= CLUSTERS // 100, rejecting
    assert mixed >= CLUSTERS // 5
