"""Topology spread decides as kube-scheduler's does."""

import asyncio
from typing import Any

import pytest

from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, node, pod, state
from tests.scheduler.support.rejections import texts
from tests.scheduler.support.scheduling import schedule

UNEVEN = "node didn't match pod topology spread constraints"
MISSING = "node didn't match pod topology spread constraints (missing required label)"
HOST, ZONE = "kubernetes.io/hostname", "zone"


def spread(*changes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return constraints on pods with app=web; each is made of `fields` and one of `changes`."""
    base = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **fields,
    }
    return {"topologySpreadConstraints": [{**base, **change} for change in changes or ({},)]}


def cluster(*, clock: Clock | None = None, taints: dict[str, list[Any]] | None = None, **pods: int) -> ClusterState:
    """Return zone a with two nodes and zone b with one; node x1 is in no zone. `pods`: pods with app=web by node."""
    made = state(clock=clock)
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("x1", "")):
        labels = {HOST: name, **({ZONE: zone} if zone else {})}
        spec = {"taints": (taints or {}).get(name, [])}
        made.set_node(node(name, metadata={"name": name, "labels": labels}, spec=spec))
    for name, count in pods.items():
        for index in range(count):
            made.set_pod(web(f"{name}-{index}", name))
    return made


def web(name: str, on: str = "", **fields: Any) -> Any:
    """Return a pod with app=web."""
    return pod(name, node=on, **{"labels": {"app": "web"}, **fields})


def fitting(made: ClusterState, spec: dict[str, Any], **fields: Any) -> set[str]:
    """Return the nodes that take a pod with app=web."""
    return fitting_nodes(made, web("p", **spec, **fields))


def fitting_nodes(made: ClusterState, asks: Pod) -> set[str]:
    """Return the nodes that take a pod."""
    return set(finish(made.node_filter.filter(asks)).fitting)


def test_the_skew_of_no_domain_exceeds_the_maximum() -> None:
    """With the pod, a domain has at most maxSkew more than the emptiest one; a node without the label is rejected."""
    made = cluster(a1=1)
    assert fitting(made, spread()) == {"b1"}
    refusals = texts(finish(made.node_filter.filter(web("p", **spread()))).rejections)
    assert refusals == {"a1": UNEVEN, "a2": UNEVEN, "x1": MISSING}
    assert fitting(made, spread(maxSkew=2)) == {"a1", "a2", "b1"}
    assert fitting(cluster(a1=2, a2=1, b1=1), spread(maxSkew=2)) == {"b1"}


def test_a_pod_that_its_own_selector_does_not_match_adds_nothing() -> None:
    """The domain may already have maxSkew more pods."""
    made = cluster(a1=1)
    assert fitting_nodes(made, pod("p", **spread())) == {"a1", "a2", "b1"}
    made = cluster(a1=2)
    assert fitting_nodes(made, pod("p", **spread())) == {"b1"}


def test_fewer_domains_than_required_count_as_an_empty_one() -> None:
    """With minDomains 3 and two zones the emptiest zone does not exist yet."""
    made = cluster(a1=1, b1=1)
    assert fitting(made, spread(minDomains=2)) == {"a1", "a2", "b1"}
    assert fitting(made, spread(minDomains=3)) == set()
    assert fitting(made, spread(minDomains=3, maxSkew=2)) == {"a1", "a2", "b1"}


def test_all_constraints_apply_together() -> None:
    """Nodes without one of the keys are not counted for any constraint."""
    made = cluster(a1=1, b1=1)
    assert fitting(made, spread({}, {"topologyKey": HOST})) == {"a2"}
    assert fitting(cluster(x1=1), spread({"topologyKey": HOST})) == {"a1", "a2", "b1"}
    assert fitting(cluster(x1=3), spread({}, {"topologyKey": HOST})) == {"a1", "a2", "b1"}


def test_only_matching_live_pods_of_the_namespace_count() -> None:
    """Terminating pods do not count."""
    made = cluster()
    made.set_pod(web("other", "a1", namespace="red"))
    made.set_pod(web("leaving", "a1", deleted="2026-01-01T00:00:00Z"))
    made.set_pod(pod("db", node="a1", labels={"app": "db"}))
    assert fitting(made, spread()) == {"a1", "a2", "b1"}
    made.set_pod(web("one", "a1"))
    assert fitting(made, spread()) == {"b1"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [(None, {"a1", "a2", "b1"}), ({}, {"a1", "a2", "b1"}), ({"matchLabels": {"app": "web"}}, {"b1"})],
)
def test_an_empty_selector_counts_no_pod(selector: Any, expected: set[str]) -> None:
    """Missing or empty, as in kube-scheduler."""
    assert fitting(cluster(a1=1), spread(labelSelector=selector)) == expected


def test_match_label_keys_narrow_the_selector() -> None:
    """Only pods with the pod's own value count; a key that the pod lacks is ignored."""
    made = cluster(a1=1)
    made.set_pod(pod("new", node="b1", labels={"app": "web", "version": "2"}))
    own: dict[str, Any] = {"labels": {"app": "web", "version": "2"}}
    assert fitting_nodes(made, pod("p", **own, **spread(matchLabelKeys=["version"]))) == {"a1", "a2"}
    assert fitting_nodes(made, pod("p", **own, **spread(matchLabelKeys=["none"]))) == {
        "a1",
        "a2",
        "b1",
    }
    assert set(
        finish(made.node_filter.filter(pod("p", **own, **spread(matchLabelKeys=["version"], labelSelector={})))).fitting
    ) == {
        "a1",
        "a2",
    }
    nothing = spread(matchLabelKeys=["version"], labelSelector=None)
    assert fitting_nodes(made, pod("p", **own, **nothing)) == {"a1", "a2", "b1"}


def test_nodes_excluded_by_affinity_are_not_counted() -> None:
    """Unless the constraint counts them: then an empty domain that the pod may not use keeps it out of the others."""
    made = cluster(a1=1)
    only_a = {"nodeSelector": {ZONE: "a"}}
    assert fitting(made, {**spread(), **only_a}) == {"a1", "a2"}
    assert fitting(made, {**spread(nodeAffinityPolicy="Ignore"), **only_a}) == set()


def test_tainted_nodes_are_counted_by_default() -> None:
    """The default of nodeTaintsPolicy is Ignore."""
    made = cluster(taints={"b1": [{"key": "k", "effect": "NoSchedule"}]}, a1=1)
    assert fitting(made, spread()) == set()
    assert fitting(made, spread(nodeTaintsPolicy="Honor")) == {"a1", "a2"}
    soft = cluster(taints={"b1": [{"key": "k", "effect": "PreferNoSchedule"}]}, a1=1)
    assert fitting(soft, spread(nodeTaintsPolicy="Honor")) == {"b1"}


def test_schedule_anyway_rejects_no_node() -> None:
    """It is a preference."""
    assert fitting(cluster(a1=3), spread(whenUnsatisfiable="ScheduleAnyway")) == {"a1", "a2", "b1", "x1"}


def test_assumed_pods_count() -> None:
    """Six replicas over two zones: three each, although no Binding has been observed."""
    made = cluster()
    results = [finish(schedule(made, web(f"p{index}", **spread()))) for index in range(6)]
    zones = ["a" if each.node.startswith("a") else "b" for each in results if isinstance(each, Scheduled)]
    assert sorted(zones) == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize("change", ["another comes", "one leaves", "the empty domain goes"])
async def test_a_change_of_the_counts_wakes_a_pod(change: str) -> None:
    """The pod waits until the others are spread more evenly."""
    clock = Clock()
    full = {"b1": [{"key": "full", "effect": "NoSchedule"}]}
    made = cluster(clock=clock, taints=full, a1=1)
    made.set_pod(web("waits", **spread()))
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    if change == "another comes":
        made.set_pod(web("peer", "b1"))
    elif change == "one leaves":
        made.set_pod(web("a1-0", "a1", deleted="2026-01-01T00:00:00Z"), web("a1-0", "a1"))
    else:
        made.drop_node(node("b1"))
    async with asyncio.timeout(10):
        assert await made.queue.pop() is entry
    assert isinstance(finish(schedule(made, entry.pod)), Scheduled)
