"""Vectors from kube-scheduler's InterPodAffinity: weights summed by domain, scaled from the lowest to the highest."""

from typing import Any

from scheduler.filters.node_cache import NodeCache
from scheduler.scoring import inter_pod_affinity
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preferring import PREFERRED, cluster, everywhere, labelled, listed, near, running

NODES = (labelled("n1", zone="a"), labelled("n2", zone="a"), labelled("n3", zone="b"), labelled("n4"))


def scores(made: NodeCache, **spec: Any) -> list[int]:
    """Return the scores of the nodes for a pod."""
    pending = pod("p", **{"labels": {"app": "y"}, **spec})
    assert inter_pod_affinity.concerns(pending, made)
    return listed(inter_pod_affinity.scores(pending, everywhere(made), made))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with preferred affinity."""
    return {"affinity": {"podAffinity": {PREFERRED: [*terms]}}}


def anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with preferred anti-affinity."""
    return {"affinity": {"podAntiAffinity": {PREFERRED: [*terms]}}}


def test_each_matching_pod_adds_the_weight_to_its_domain() -> None:
    """Zone a has two pods, zone b one, n4 no zone: 20, 20, 10, 0."""
    made = cluster(*NODES, running=(running("a", "n1"), running("b", "n2"), running("c", "n3")))
    assert scores(made, **affinity(near("zone", weight=10, app="x"))) == [100, 100, 50, 0]


def test_anti_affinity_subtracts() -> None:
    """-2, -2, -1 and 0: 100 * (2 - 1) / 2 is 50."""
    made = cluster(*NODES, running=(running("a", "n1"), running("b", "n2"), running("c", "n3")))
    assert scores(made, **anti_affinity(near("zone", app="x"))) == [0, 0, 50, 100]


def test_terms_with_different_keys_add_up() -> None:
    """n1 has 3 for the zone and 4 for the host, n2 3: 100 * 3 / 7 is 42."""
    made = cluster(*NODES, running=(running("a", "n1"),))
    terms = (near("zone", weight=3, app="x"), near("kubernetes.io/hostname", weight=4, app="x"))
    assert scores(made, **affinity(*terms)) == [100, 42, 0, 0]


def test_running_pods_prefer_too() -> None:
    """Their preferred terms count for a pod that has none; where both cancel out, all nodes are equal."""
    friendly = running("a", "n3", **affinity(near("zone", weight=5, app="y")))
    hostile = running("b", "n1", **anti_affinity(near("zone", weight=5, app="y")))
    assert scores(cluster(*NODES, running=(friendly,))) == [0, 0, 100, 0]
    assert scores(cluster(*NODES, running=(friendly, hostile))) == [0, 0, 100, 50]
    moved = running("c", "n3", **anti_affinity(near("zone", weight=5, app="y")))
    assert scores(cluster(*NODES, running=(friendly, moved))) == [0, 0, 0, 0]


def test_required_affinity_of_running_pods_counts_1() -> None:
    """kube-scheduler's hardPodAffinityWeight; a preferred term with weight 2 in another zone outweighs it."""
    term = near("zone", app="y")["podAffinityTerm"]
    hard = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    soft = running("b", "n3", **affinity(near("zone", weight=2, app="y")))
    assert scores(cluster(*NODES, running=(running("a", "n1", **hard),))) == [100, 100, 0, 0]
    assert scores(cluster(*NODES, running=(running("a", "n1", **hard), soft))) == [50, 50, 100, 0]


def test_only_matching_pods_of_the_namespaces_of_a_term_count() -> None:
    """Without namespaces and namespaceSelector, those of the pod's own namespace; a selector goes by their labels."""
    made = cluster(*NODES, running=(running("a", "n1", namespace="other"), running("b", "n3", labels={"app": "z"})))
    made.set_namespace("other", {"team": "red"})
    term = near("zone", weight=1, app="x")
    assert scores(made, **affinity(term)) == [0, 0, 0, 0]
    term["podAffinityTerm"]["namespaceSelector"] = {"matchLabels": {"team": "red"}}
    assert scores(made, **affinity(term)) == [100, 100, 0, 0]


def test_pods_that_end_count_no_more() -> None:
    """A pod is not concerned when the last pod that prefers it has gone."""
    both = [running(name, "n3", **affinity(near("zone", weight=5, app="y"))) for name in "ab"]
    made = cluster(*NODES, running=tuple(both))
    made.remove_pod(both[0].uid)
    assert scores(made) == [0, 0, 100, 0]
    made.remove_pod(both[1].uid)
    assert not inter_pod_affinity.concerns(pod("p", labels={"app": "y"}), made)


def test_pods_on_unknown_nodes_count_nothing() -> None:
    """Their domain is not known."""
    made = cluster(*NODES, running=(running("a", "gone"), running("b", "n3")))
    assert scores(made, **affinity(near("zone", app="x"))) == [0, 0, 100, 0]
