"""Topology spread decides as kube-scheduler's does."""

import asyncio
from typing import Any

import pytest

from scheduler.cycle import Chosen, Waiting, decide
from scheduler.state import State
from tests.scheduler.builders import Clock, node, pod, state

UNEVEN = "node didn't match pod topology spread constraints"
MISSING = "node didn't match pod topology spread constraints (missing required label)"
HOST, ZONE = "kubernetes.io/hostname", "zone"


def spread(*changes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Answer constraints on pods with app=web; each is made of `fields` and one of `changes`."""
    base = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **fields,
    }
    return {"topologySpreadConstraints": [{**base, **change} for change in changes or ({},)]}


def cluster(*, clock: Clock | None = None, taints: dict[str, list[Any]] | None = None, **pods: int) -> State:
    """Answer zone a with two nodes and zone b with one; node x1 is in no zone. `pods`: pods with app=web by node."""
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
    """Answer a pod with app=web."""
    return pod(name, node=on, **{"labels": {"app": "web"}, **fields})


def fitting(made: State, spec: dict[str, Any], **fields: Any) -> set[str]:
    """Answer the nodes that take a pod with app=web."""
    return set(made.fleet.sort(web("p", **spec, **fields)).fitting)


def test_no_domain_gets_ahead_of_the_emptiest() -> None:
    """With the pod, a domain has at most maxSkew more than the emptiest one; a node without the label is refused."""
    made = cluster(a1=1)
    assert fitting(made, spread()) == {"b1"}
    refusals = made.fleet.sort(web("p", **spread())).refusals
    assert refusals == {"a1": UNEVEN, "a2": UNEVEN, "x1": MISSING}
    assert fitting(made, spread(maxSkew=2)) == {"a1", "a2", "b1"}
    assert fitting(cluster(a1=2, a2=1, b1=1), spread(maxSkew=2)) == {"b1"}


def test_a_pod_that_its_own_selector_does_not_mean_adds_nothing() -> None:
    """The domain may be ahead by maxSkew already."""
    made = cluster(a1=1)
    assert set(made.fleet.sort(pod("p", **spread())).fitting) == {"a1", "a2", "b1"}
    made = cluster(a1=2)
    assert set(made.fleet.sort(pod("p", **spread())).fitting) == {"b1"}


def test_too_few_domains_count_as_one_that_is_empty() -> None:
    """With minDomains 3 and two zones the emptiest zone is one that is still to come."""
    made = cluster(a1=1, b1=1)
    assert fitting(made, spread(minDomains=2)) == {"a1", "a2", "b1"}
    assert fitting(made, spread(minDomains=3)) == set()
    assert fitting(made, spread(minDomains=3, maxSkew=2)) == {"a1", "a2", "b1"}


def test_all_constraints_hold_together() -> None:
    """Nodes that lack any of the keys are counted for none."""
    made = cluster(a1=1, b1=1)
    assert fitting(made, spread({}, {"topologyKey": HOST})) == {"a2"}
    assert fitting(cluster(x1=1), spread({"topologyKey": HOST})) == {"a1", "a2", "b1"}
    assert fitting(cluster(x1=3), spread({}, {"topologyKey": HOST})) == {"a1", "a2", "b1"}


def test_who_is_counted() -> None:
    """Pods of the own namespace which the selector means and which are not being deleted."""
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
def test_a_selector_that_says_nothing_counts_nobody(selector: Any, expected: set[str]) -> None:
    """Missing or empty: as in kube-scheduler."""
    assert fitting(cluster(a1=1), spread(labelSelector=selector)) == expected


def test_match_label_keys_narrow_the_selector() -> None:
    """Only pods with the pod's own value count; a key that the pod lacks is ignored."""
    made = cluster(a1=1)
    made.set_pod(pod("new", node="b1", labels={"app": "web", "version": "2"}))
    own: dict[str, Any] = {"labels": {"app": "web", "version": "2"}}
    assert set(made.fleet.sort(pod("p", **own, **spread(matchLabelKeys=["version"]))).fitting) == {"a1", "a2"}
    assert set(made.fleet.sort(pod("p", **own, **spread(matchLabelKeys=["none"]))).fitting) == {"a1", "a2", "b1"}
    assert set(made.fleet.sort(pod("p", **own, **spread(matchLabelKeys=["version"], labelSelector={}))).fitting) == {
        "a1",
        "a2",
    }
    nothing = spread(matchLabelKeys=["version"], labelSelector=None)
    assert set(made.fleet.sort(pod("p", **own, **nothing)).fitting) == {"a1", "a2", "b1"}


def test_nodes_that_the_pod_may_not_use_by_its_affinity_are_not_counted() -> None:
    """Unless the constraint says so: then an empty domain that it may not use keeps it out of the others."""
    made = cluster(a1=1)
    only_a = {"nodeSelector": {ZONE: "a"}}
    assert fitting(made, {**spread(), **only_a}) == {"a1", "a2"}
    assert fitting(made, {**spread(nodeAffinityPolicy="Ignore"), **only_a}) == set()


def test_tainted_nodes_are_counted_unless_the_constraint_says_otherwise() -> None:
    """The default is Ignore: the taint is not looked at."""
    made = cluster(taints={"b1": [{"key": "k", "effect": "NoSchedule"}]}, a1=1)
    assert fitting(made, spread()) == set()
    assert fitting(made, spread(nodeTaintsPolicy="Honor")) == {"a1", "a2"}
    soft = cluster(taints={"b1": [{"key": "k", "effect": "PreferNoSchedule"}]}, a1=1)
    assert fitting(soft, spread(nodeTaintsPolicy="Honor")) == {"b1"}


def test_a_wish_refuses_nothing() -> None:
    """ScheduleAnyway is a preference."""
    assert fitting(cluster(a1=3), spread(whenUnsatisfiable="ScheduleAnyway")) == {"a1", "a2", "b1", "x1"}


def test_decisions_count_before_they_are_bound() -> None:
    """Six replicas over two zones: three each, although no Binding has been shown to us."""
    made = cluster()
    homes = [decide(made, web(f"p{index}", **spread())) for index in range(6)]
    zones = ["a" if home.node.startswith("a") else "b" for home in homes if isinstance(home, Chosen)]
    assert sorted(zones) == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize("cure", ["another comes", "one leaves", "the empty domain goes"])
async def test_a_pod_waits_for_the_others_to_be_even(cure: str) -> None:
    """What changes the counts wakes it."""
    clock = Clock()
    full = {"b1": [{"key": "full", "effect": "NoSchedule"}]}
    made = cluster(clock=clock, taints=full, a1=1)
    made.set_pod(web("waits", **spread()))
    entry = await made.queue.pop()
    decision = decide(made, entry.pod)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 10
    if cure == "another comes":
        made.set_pod(web("peer", "b1"))
    elif cure == "one leaves":
        made.set_pod(web("a1-0", "a1", deleted="2026-01-01T00:00:00Z"), web("a1-0", "a1"))
    else:
        made.drop_node(node("b1"))
    async with asyncio.timeout(1):
        assert await made.queue.pop() is entry
    assert isinstance(decide(made, entry.pod), Chosen)
