"""Vectors from kube-scheduler's PodTopologySpread: pods by domain times ln(domains + 2), and the fewest have 100."""

from typing import Any

from scheduler.filters.node_cache import NodeCache
from scheduler.scoring import topology_spread
from scheduler.scoring.candidates import NodeList
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preferring import HOST_NAME, anyway, cluster, everywhere, labelled, listed, running

NODES = (labelled("n1", zone="a"), labelled("n2", zone="a"), labelled("n3", zone="b"), labelled("n4"))


def scores(made: NodeCache, *constraints: dict[str, Any], names: tuple[str, ...] = (), **spec: Any) -> list[int]:
    """Return the scores of `names`, or of all nodes."""
    pending = pod("p", labels={"app": "x", "version": "2"}, topologySpreadConstraints=[*constraints], **spec)
    nodes = NodeList([made.nodes[name] for name in names]) if names else everywhere(made)
    return listed(topology_spread.scores(pending, nodes, made))


def pods(*nodes: str, **more: Any) -> tuple[Any, ...]:
    """Return running pods, one for each name of a node."""
    return tuple(running(f"r{position}", name, **more) for position, name in enumerate(nodes))


def test_fewer_pods_in_the_zone_are_better() -> None:
    """ln(2 + 2) is 1.386: 3 pods give 4, 1 gives 1; 100 * (4 + 1 - 4) // 4 is 25. A node without a zone has 0."""
    assert scores(cluster(*NODES, running=pods("n1", "n1", "n2", "n3")), anyway("zone")) == [25, 25, 100, 0]


def test_without_pods_all_nodes_are_as_good() -> None:
    """The highest count is 0."""
    assert scores(cluster(*NODES), anyway("zone")) == [100, 100, 100, 0]


def test_every_host_is_a_domain() -> None:
    """ln(4 + 2) is 1.792: 2 pods give 4 (3.58), 1 gives 2: 100 * (4 + 0 - 2) // 4 is 50."""
    assert scores(cluster(*NODES, running=pods("n1", "n1", "n3")), anyway(HOST_NAME)) == [0, 100, 50, 100]


def test_max_skew_softens_differences() -> None:
    """Each score has maxSkew - 1 = 4 more: 8 (4.16 + 4) and 5 (1.39 + 4), so 100 * (8 + 5 - 8) // 8 is 62."""
    assert scores(cluster(*NODES, running=pods("n1", "n1", "n2", "n3")), anyway("zone", skew=5)) == [62, 62, 100, 0]


def test_constraints_add_up_and_need_all_keys() -> None:
    """n4 has no zone, so three hosts count: n1 has 3 * (ln 4 + ln 5), n2 3 * ln 4, n3 0, rounded 9, 4 and 0."""
    found = scores(cluster(*NODES, running=pods("n1", "n1", "n1", "n4")), anyway("zone"), anyway(HOST_NAME))
    assert found == [0, 55, 100, 0]


def test_only_domains_of_nodes_that_take_the_pod_count() -> None:
    """With one zone left its weight is ln(1 + 2); pods on other nodes of the zone count."""
    made = cluster(*NODES, running=pods("n1", "n1", "n3"))
    assert scores(made, anyway("zone"), names=("n2",)) == [100]
    assert scores(made, anyway("zone"), names=("n2", "n3")) == [33, 100]


def test_match_label_keys_narrow_the_selector() -> None:
    """Only pods with the version of the pod itself count."""
    old = running("old", "n1", labels={"app": "x", "version": "1"})
    new = running("new", "n3", labels={"app": "x", "version": "2"})
    made = cluster(*NODES, running=(old, new))
    assert scores(made, anyway("zone", matchLabelKeys=["version"])) == [100, 100, 0, 0]


def test_policies_exclude_nodes_whose_pods_then_do_not_count() -> None:
    """By default those that the pod's nodeSelector excludes, and never for the host name."""
    made = cluster(labelled("n1", zone="a", disk="ssd"), *NODES[1:3], running=pods("n2", "n3", "n3"))
    selecting = {"nodeSelector": {"disk": "ssd"}}
    assert scores(made, anyway("zone"), **selecting) == [100, 100, 100]
    assert scores(made, anyway("zone", nodeAffinityPolicy="Ignore"), **selecting) == [100, 100, 33]
    assert scores(made, anyway(HOST_NAME), **selecting) == [100, 33, 0]


def test_terminating_pods_and_other_namespaces_do_not_count() -> None:
    """As in the filter."""
    going = running("a", "n1", deleted="2026-01-01T00:00:00Z")
    made = cluster(*NODES, running=(going, running("b", "n1", namespace="other"), running("c", "n3")))
    assert scores(made, anyway("zone")) == [100, 100, 0, 0]


def test_only_a_pod_with_such_a_constraint_is_concerned() -> None:
    """One with DoNotSchedule has been filtered by."""
    assert topology_spread.concerns(pod("p", topologySpreadConstraints=[anyway("zone")]))
    strict = anyway("zone") | {"whenUnsatisfiable": "DoNotSchedule"}
    assert not topology_spread.concerns(pod("p", topologySpreadConstraints=[strict]))
