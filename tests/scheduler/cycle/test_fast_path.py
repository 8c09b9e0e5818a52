"""The fast path and the full path give the same result after any history."""

import random
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.inventory import NodeInventory
from allocation.steps import Steps, finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.filters import node_filter
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support import claims
from tests.scheduler.support.builders import Clock, lease, node, pod, state, status
from tests.scheduler.support.preferring import HOST_NAME, PREFERRED, in_
from tests.scheduler.support.scheduling import cycle_of, forget, schedule
from tests.scheduler.support.storage_chaos import (
    CLASSES,
    NUMBERS,
    some_claim,
    some_volume,
    some_volumes,
    storage_change,
)
from tests.scheduler.support.worlds import bound

NODES = [f"n{number}" for number in range(5)]
SPECS: list[dict[str, Any]] = [
    {"memory": 300},
    {"memory": 300},
    {"memory": 700},
    {"memory": 100, "nodeSelector": {"zone": "a"}},
    {"memory": 100, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    {"memory": 200, "annotations": {"hami.io/node-scheduler-policy": "spread"}},
    {"memory": 100, "annotations": {"hami.io/gpu-scheduler-policy": "topology-aware"}},
    {"memory": 100, "annotations": {"tensor-fusion.ai/require-gpu-topology": "true"}},
    {"memory": 5000},
]
APPS = {"matchLabels": {"app": "a"}}


def near(key: str, *, anti: bool = False) -> dict[str, Any]:
    """Return the affinity of a pod to pods of application a in the same domain, or its anti-affinity."""
    terms = [{"labelSelector": APPS, "topologyKey": key}]
    return {"podAntiAffinity" if anti else "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def spread(key: str, **changes: Any) -> dict[str, Any]:
    """Return the constraint that pods of application a are spread over the domains of a key."""
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APPS}
    return {"topologySpreadConstraints": [{**constraint, **changes}]}


RULES: list[dict[str, Any]] = [
    {"affinity": near(HOST_NAME, anti=True)},
    {"affinity": near("zone", anti=True)},
    {"affinity": near("zone")},
    spread(HOST_NAME),
    spread("zone"),
    {**spread("zone"), "affinity": near(HOST_NAME, anti=True)},
    spread("zone", whenUnsatisfiable="ScheduleAnyway"),
]
"""What the specs of pods say about other pods."""
CLAIMS = [
    *(claims.claim(f"claim-{number}", **devices) for number, devices in enumerate(claims.DEVICES)),
    *(claims.claim(f"linked-{number}", count=2, topology=each) for number, each in enumerate(claims.TOPOLOGIES)),
]


def no_fast_path(*_: object, **__: object) -> Steps[None]:
    """Return no result."""
    yield from ()


def is_restricted(made: Pod) -> bool:
    """Whether a pod has unbound claims, or rules about other pods, or may meet rules of others."""
    spec, meets_rules = made.spec, made.metadata.labels.get("app") == "a"
    return bool(spec.volumes or spec.affinity or spec.topology_spread_constraints or meets_rules)


class Twins:
    """Two schedulers with the same history; the second always takes the full path."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.clock = Clock()
        self.states = [state(clock=self.clock), state(clock=self.clock)]
        cycle_of(self.states[1])._fast_path.find = no_fast_path  # type: ignore[method-assign]
        self.states[1].node_filter.few_candidates = lambda _: None  # type: ignore[method-assign]
        for each in CLASSES:
            self.storage("set_class", each)
        for number in NUMBERS:
            self.storage("set_claim", some_claim(self.chance, number))
            self.storage("set_volume", some_volume(self.chance, number))
        for each in CLAIMS:
            self.each("set_claim", each)
        self.running: list[Pod] = []
        self.count = 0

    def each(self, act: str, *arguments: object) -> None:
        """Call a method of both states, or of a part of them."""
        for each in self.states:
            attrgetter(act)(each)(*arguments)

    def storage(self, act: str, item: object) -> None:
        """Apply a storage object to both states."""
        self.each(f"storage.{act}", item)

    def step(self) -> None:
        """Make one random change."""
        chance, name = self.chance, self.chance.choice(NODES)
        match chance.choices(
            ("node", "cards", "beat", "gone", "late", "stray", "end", "storage", "pod"), (2, 2, 2, 1, 1, 1, 3, 6, 9)
        )[0]:
            case "storage":
                self.storage(*storage_change(chance, name))
            case "node":
                self.each("set_node", self.node(name))
            case "cards":
                self.each("agent_reports.set", self.status(name))
            case "beat":
                self.each("set_lease", lease(name, renewed=f"2026-01-01T00:00:{chance.random()}Z"))
            case "gone":
                self.each("drop_node", node(name))
            case "late":
                self.clock.now += chance.choice((10, 70))
            case "stray":
                self.arrive(pod(f"stray-{self.next()}", memory=10, node=name, phase="Running"))
            case "end":
                if self.running:
                    self.each("drop_pod", self.running.pop(chance.randrange(len(self.running))))
            case _:
                self.schedule()

    def node(self, name: str) -> Any:
        """Return a node with random labels, taints and allocatable resources."""
        chance = self.chance
        taints = [{"key": "gpu", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": str(chance.choice((2, 110)))}
        if chance.random() < 0.2:
            allocatable["nvidia.com/gpu"] = str(chance.randint(1, 3))
        return node(
            name,
            metadata={"name": name, "labels": {HOST_NAME: name, "zone": chance.choice("ab")}},
            spec={"taints": taints, "unschedulable": chance.random() < 0.1},
            status={"allocatable": allocatable},
        )

    def status(self, name: str) -> GpuNodeStatus:
        """Return what an agent reports: shared cards, and sometimes one in MIG mode."""
        chance = self.chance
        made = status(name, cards=chance.randint(1, 3), healthy=chance.random() < 0.9)
        if chance.random() < 0.3:
            starts = chance.sample(range(7), chance.randint(0, 3))
            mig = (mig_card(9, node=name), *(instance(9, "1g.5gb", start, node=name) for start in starts))
            made.status = status_of(NodeInventory(name, (*made.inventory().cards, *mig)))
        return made

    def pod(self) -> Pod:
        """Return a pod, half of them with a claim, others with rules about pods of an application."""
        name, chance = f"asks-{self.next()}", self.chance
        volumes = {"volumes": some_volumes(chance)} if chance.random() < 0.6 else {}
        if chance.random() < 0.5:
            containers = ("main", "side")[: chance.choice((1, 1, 2))]
            return claims.claiming(name, chance.choice(CLAIMS), containers=containers, **volumes)
        rules = chance.choice(RULES) if chance.random() < 0.5 else {}
        return pod(name, labels={"app": chance.choice("ab")}, **{**chance.choice(SPECS), **volumes, **rules})

    def next(self) -> int:
        """Return a number that was not used before."""
        self.count += 1
        return self.count

    def arrive(self, made: Pod) -> None:
        """Add a running pod."""
        self.each("set_pod", made)
        self.running.append(made)

    def schedule(self) -> None:
        """Schedule a pod by both schedulers; compare the results, then run or forget the pod."""
        pending = self.pod()
        fast, full = (finish(schedule(each, pending)) for each in self.states)
        assert type(fast) is type(full)
        if isinstance(fast, Unschedulable):
            assert isinstance(full, Unschedulable)
            assert (fast.note, fast.is_held, fast.reasons) == (full.note, full.is_held, full.reasons)
            return
        assert isinstance(full, Scheduled)
        assert (fast.node, fast.allocation, fast.charges) == (full.node, full.allocation, full.charges)
        assert (fast.instances, fast.visible_as) == (full.instances, full.visible_as)
        # For rules and unbound claims the fast path looks at the best nodes alone, and does not count the others.
        assert fast.note == full.note or (is_restricted(pending) and "at least" in fast.note)
        assert fast.volumes == full.volumes
        if self.chance.random() < 0.3:
            for each in self.states:
                forget(each, pending)
            return
        self.arrive(bound(pending, fast))


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_fast_path_equals_full_path(seed: int, steps: int) -> None:
    """The same node, cards and words after any history of nodes, agents, uncounted pods and other pods."""
    twins = Twins(seed)
    for _ in range(steps):
        twins.step()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"affinity": near(HOST_NAME, anti=True)}, ["n1", "n2", "n3", "n4"]),
        ({"affinity": near("zone", anti=True)}, ["n1", "n3"]),
        (spread("zone"), ["n1", "n3", "n1", "n3"]),
        (spread(HOST_NAME, maxSkew=2), ["n1", "n1", "n2", "n2"]),
    ],
)
def test_rules_about_other_pods_are_tried_on_the_best_nodes(spec: dict[str, Any], expected: list[str]) -> None:
    """Best first, and every node is evaluated only where none of the best takes the pod."""
    made = state()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "b")):
        made.set_node(node(name, metadata={"name": name, "labels": {HOST_NAME: name, "zone": zone}}))
        made.agent_reports.set(status(name, cards=1))
        made.set_lease(lease(name))
    for number, name in enumerate(expected):
        found = finish(schedule(made, pod(f"a-{number}", memory=10, labels={"app": "a"}, **spec)))
        assert isinstance(found, Scheduled)
        assert (found.node, found.path) == (name, "cached")
    if spec.get("affinity"):
        for path in ("full", "cached"):
            last = finish(schedule(made, pod(f"last-{path}", memory=10, labels={"app": "a"}, **spec)))
            assert isinstance(last, Unschedulable)
            assert (last.reasons, last.path) == ({"PodAntiAffinityMismatch"}, path)


def test_only_some_of_the_best_nodes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then every node is evaluated."""
    monkeypatch.setattr(node_filter, "_RULED", 2)
    made, rule = state("n1", "n2", "n3"), {"affinity": near(HOST_NAME, anti=True)}
    found = [finish(schedule(made, pod(f"a-{at}", memory=10, labels={"app": "a"}, **rule))) for at in range(3)]
    assert all(isinstance(each, Scheduled) for each in found)
    assert [each.path for each in found if each is not None] == ["cached", "cached", "full"]


def test_preferences_of_a_pod_with_rules_are_scored_over_the_nodes_that_take_it() -> None:
    """The preferred node is not the one that its rules forbid, and scores are normalised without that."""
    made = state("n1", "n2", "n3")
    affinity = {**near(HOST_NAME, anti=True), "nodeAffinity": {PREFERRED: [in_(HOST_NAME, "n3", weight=9)]}}
    found = [
        finish(schedule(made, pod(f"a-{at}", memory=10, labels={"app": "a"}, affinity=affinity))) for at in range(2)
    ]
    assert [(each.node, each.path) for each in found if isinstance(each, Scheduled)] == [("n3", "full"), ("n1", "full")]


@pytest.mark.parametrize("is_new", [True, False])
def test_cached_reasons_are_dropped_when_the_cluster_changes(is_new: bool) -> None:  # noqa: FBT001
    """The reasons for an unschedulable pod are reused for an equal pod only if nothing has changed since."""
    made: ClusterState = state("n1")
    first = finish(schedule(made, pod("a", memory=5000)))
    assert isinstance(first, Unschedulable)
    if is_new:
        made.set_node(node("n2"))
    again = finish(schedule(made, pod("b", memory=5000)))
    assert isinstance(again, Unschedulable)
    assert ("2 nodes do not meet" in again.note) is is_new
