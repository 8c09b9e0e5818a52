"""What is counted equals a recount after any history, and every difference is found."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.ledger.ledger import LEASE_PREFIX
from allocation.names import CHARGED_TO, QUEUE
from allocation.steps import advance, finish
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.cycle.result import Scheduled
from scheduler.fairness.use import Use
from scheduler.gang_scheduling.gang_cycle import GangCycle
from scheduler.holds import Hold
from scheduler.objects import Namespace, Pod
from scheduler.state.comparison import differences
from tests.scheduler.support.builders import allocated, namespace, node, pod, state, status
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.leasing import lease_of
from tests.scheduler.support.scheduling import cycle_of, forget, schedule

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.state.cluster_state import ClusterState

TEAM = {QUEUE: "team"}
CPU = {"requests": {"cpu": "2", "memory": "1Gi"}}


@dataclasses.dataclass
class World:
    """A state, the informer of pods that passes each change on to it, and the pods whose Bindings are under way."""

    state: ClusterState = dataclasses.field(default_factory=lambda: state("n1", "n2", cards=4))
    being_bound: dict[str, tuple[Pod, Scheduled]] = dataclasses.field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        """Connect the informer."""
        self.pods = Informer(cast("Api", None), PODS, Pod, on_upsert=self.state.set_pod, on_delete=self.state.drop_pod)

    @property
    def namespace(self) -> Namespace:
        """The namespace of the pods, as the state has it."""
        return namespace("default", **self.state.node_cache.namespaces.get("default", {}))

    def set(self, made: Pod) -> None:
        """Set a pod, as the watch does."""
        self.version += 1
        made.metadata.resource_version = str(self.version)
        self.pods._set(made)

    def differences(self, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """Compare; `meanwhile` is called between any two steps."""
        steps = differences(self.state, self.pods, being_bound=frozenset(self.being_bound))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return [f"{each.kind} {each.text}" for each in end.value]
            meanwhile()

    def schedule(self, pending: Pod) -> None:
        """Place a pod; its Binding is under way then."""
        self.set(pending)
        result = finish(schedule(self.state, pending))
        if isinstance(result, Scheduled):
            self.being_bound[pending.uid] = (pending, result)

    def forget(self, uid: str) -> None:
        """Let a Binding fail."""
        pending, _ = self.being_bound.pop(uid)
        forget(self.state, pending)

    def bind(self, uid: str, *, charged: bool) -> None:
        """Show the Binding of a pod."""
        pending, result = self.being_bound.pop(uid)
        fields: dict[str, Any] = {"annotations": {CHARGED_TO: "team"}} if charged else {}
        if result.allocation is None:
            self.set(pod(pending.metadata.name, node=result.node, phase="Running", **fields))
            return
        share = result.allocation.containers["main"][0]
        card, memory = int(share.uuid[-1]), share.memory_mib
        bound = allocated(pending.metadata.name, node=result.node, memory=memory, card=card)
        bound.metadata.annotations |= fields.get("annotations", {})
        self.set(bound)


def _hold(world: World, number: int, _at: int) -> None:
    waiting = pod(f"p{number}", memory=10)
    world.state.holds.add(hold(waiting), waiting)


def _relabel(world: World, **labels: str) -> None:
    world.state.limits.set_namespace(namespace("default", **labels), world.namespace)


def _run(world: World, number: int, at: int) -> None:
    labels = TEAM if at % 3 == 0 else {}
    world.set(allocated(f"p{number}", node=f"n{1 + at % 2}", memory=10 * (1 + at), card=at % 4, labels=labels))


def _end(world: World, victim: Pod, _at: int) -> None:
    world.set(allocated(victim.metadata.name, node=victim.spec.node_name, memory=10, phase="Succeeded"))


def _change(world: World, victim: Pod, at: int) -> None:
    changed = msgspec.structs.replace(victim.metadata, labels=TEAM if at % 2 else {})
    world.set(msgspec.structs.replace(victim, metadata=changed))


EVENTS: dict[str, Callable[[World, int, int], object]] = {
    "run": _run,
    "decide": lambda world, number, at: world.schedule(pod(f"p{number}", memory=10 * (1 + at))),
    "plain": lambda world, number, _at: world.schedule(
        pod(f"p{number}", containers=[{"name": "main", "resources": CPU}])
    ),
    "stray": lambda world, number, _at: world.set(pod(f"p{number}", memory=5, node="n1", phase="Running")),
    "shrink": lambda world, _number, at: world.state.agent_reports.set(status("n2", cards=at % 4)),
    "grow": lambda world, _number, _at: world.state.agent_reports.set(status("n2", cards=4)),
    "node": lambda world, _number, at: world.state.set_node(node("n2", spec={"unschedulable": at % 2 == 0})),
    "no node": lambda world, _number, _at: world.state.drop_node(node("n2")),
    "queue": lambda world, _number, at: world.state.limits.set_queue(gpu_queue("team", weight=1 + at)),
    "no queue": lambda world, _number, _at: world.state.limits.drop_queue(gpu_queue("team")),
    "label": lambda world, _number, _at: _relabel(world, **TEAM),
    "no label": lambda world, _number, _at: _relabel(world),
    "no namespace": lambda world, _number, _at: world.state.limits.drop_namespace(world.namespace),
    "hold": _hold,
    "no hold": lambda world, _number, _at: [world.state.holds.release(each.uid) for each in world.state.holds],
    "lease": lambda world, _number, at: world.state.set_lease(lease_of(f"p{at}", card=at % 4)),
    "no lease": lambda world, _number, at: world.state.drop_lease(lease_of(f"p{at}", card=at % 4)),
}
OF_RUNNING: dict[str, Callable[[World, Pod, int], object]] = {
    "end": _end,
    "delete": lambda world, victim, _at: world.pods._delete(victim),
    "change": _change,
}
OF_DECIDED: dict[str, Callable[[World, str, int], object]] = {
    "undo": lambda world, uid, _at: world.forget(uid),
    "bind": lambda world, uid, at: world.bind(uid, charged=at % 2 == 0),
}
NAMES = (*EVENTS, *("run", "decide"), *(2 * (*OF_RUNNING, *OF_DECIDED)))


def change(world: World, event: str, number: int, at: int) -> None:
    """Make one change, if there is anything to change."""
    running = [each for each in world.pods if each.spec.node_name]
    under_way = sorted(world.being_bound)
    if event in EVENTS:
        EVENTS[event](world, number, at)
    elif event in OF_RUNNING and running:
        OF_RUNNING[event](world, running[at % len(running)], at)
    elif event in OF_DECIDED and under_way:
        OF_DECIDED[event](world, under_way[at % len(under_way)], at)


def hold(waiting: Pod) -> Hold:
    """Return a hold of part of a card for a pod."""
    return Hold(waiting.uid, QueueKey("team"), (0, 0), "n1", (Charge("GPU-n1-0", 10, 0, 1),), frozenset())


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), max_size=40))
def test_no_history_leads_to_a_difference(events: list[tuple[str, int]]) -> None:
    """Pods run, end, vanish, are bound or not; nodes, cards, queues, labels, holds and Leases come and go."""
    world = World()
    for number, (event, at) in enumerate(events):
        change(world, event, number, at)
        assert world.differences() == [], event


@given(st.integers(0, 2**32))
def test_changes_during_a_comparison_are_not_differences(seed: int) -> None:
    """One after each step: what is compared is always of one moment."""
    world, draw = World(), random.Random(seed)  # noqa: S311 -- a test
    number = 0

    def go_on() -> None:
        nonlocal number
        number += 1
        change(world, draw.choice(NAMES), number, draw.randrange(10))

    for _ in range(60):
        go_on()
    left = iter(range(300))
    assert world.differences(lambda: go_on() if next(left, None) is not None else None) == []
    assert world.differences() == []


def _counted(world: World) -> Use:
    return world.state.quotas.counted._uses["default"]


def _charged(world: World) -> Use:
    return world.state.fair_share.use._uses[QueueKey(namespace="default")]


def _add(use: Use, field: str, amount: int) -> None:
    setattr(use, field, getattr(use, field) + amount)


DAMAGE: dict[str, tuple[Callable[[World], object], str]] = {
    "a pod is forgotten": (lambda w: w.state.ledger.release("uid-runs"), "pod"),
    "a deleted pod is kept": (lambda w: w.pods._objects.pop(("default", "runs")), "pod"),
    "a pod is on another node": (lambda w: w.state.ledger.record("uid-runs", "n2", ()), "pod"),
    "a reservation is left": (lambda w: w.being_bound.pop("uid-decided"), "pod"),
    "a column": (lambda w: w.state.ledger.used.__setitem__((0, 0, 0), 1), "card"),
    "a list": (lambda w: w.state.ledger._used_lists[0][1].__setitem__(2, 1), "card"),
    "fullness": (lambda w: w.state.ledger.fullness.__setitem__(0, 9.5), "card"),
    "a card that a Lease closes": (lambda w: w.state.ledger.release(f"{LEASE_PREFIX}gpu-n1-3"), "lease"),
    "a card without a Lease": (lambda w: w.state.ledger.record(f"{LEASE_PREFIX}gpu-n2-3", "n2", ()), "lease"),
    "a hold without cards": (lambda w: w.state.ledger.release("hold:uid-waits"), "hold"),
    "cards without a hold": (lambda w: w.state.holds._holds.clear(), "hold"),
    "what is held": (lambda w: _add(w.state.fair_share.held._uses[QueueKey("team")], "memory_mib", 1), "hold"),
    "memory of a quota": (lambda w: _add(_counted(w), "memory_mib", 12_345), "quota"),
    "cores of a quota": (lambda w: _add(_counted(w), "cores", 1), "quota"),
    "cards of a quota": (lambda w: _add(_counted(w), "cards", -1), "quota"),
    "pods of a quota": (lambda w: _add(_counted(w), "pods", 1), "quota"),
    "a pod that a quota lacks": (lambda w: w.state.quotas.remove_pod("uid-runs"), "quota"),
    "a pod that a quota keeps": (lambda w: w.state.quotas.add_pod("uid-gone", "default"), "quota"),
    "a pod of another quota": (lambda w: w.state.quotas.add_pod("uid-runs", "other"), "quota"),
    "memory of a queue": (lambda w: _add(_charged(w), "memory_mib", -1), "queue"),
    "CPU of a queue": (lambda w: _add(_charged(w), "cpu", 1), "queue"),
    "bytes of a queue": (lambda w: _add(_charged(w), "memory_bytes", 1), "queue"),
    "a pod that a queue lacks": (lambda w: w.state.fair_share.remove_pod("uid-runs"), "queue"),
    "a pod that a queue keeps": (lambda w: w.state.fair_share._count("uid-gone", QueueKey("team")), "queue"),
    "a pod of another queue": (lambda w: w.state.fair_share._count("uid-runs", QueueKey("team")), "queue"),
    "the CPU of a pod": (lambda w: w.state.fair_share.use.add_pod("uid-runs", QueueKey(namespace="default")), "queue"),
    "the capacity of a node": (
        lambda w: w.state.fair_share.capacity._nodes.__setitem__("n1", (1, 1, 1, 1, 1, 1)),
        "capacity",
    ),
    "the total capacity": (lambda w: setattr(w.state.fair_share.capacity, "_total", (1, 1, 1, 1, 1, 1)), "capacity"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_kind_of_difference_is_found(damage: str) -> None:
    """Whatever is damaged in memory is reported, with its name and what a recount has."""
    world = World()
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100", "cpu": "2", "memory": "1Gi"}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    world.set(allocated("runs", node="n1", memory=100, card=1, containers=containers))
    world.schedule(pod("decided", memory=50))
    world.state.set_lease(lease_of("gone", card=3))
    waiting = pod("waits", memory=10)
    world.state.holds.add(hold(waiting), waiting)
    assert world.differences() == []
    spoil, kind = DAMAGE[damage]
    spoil(world)
    found = world.differences()
    assert found
    assert {text.partition(" ")[0] for text in found} >= {kind}, found


def test_each_object_is_a_step_of_its_own() -> None:
    """So that a comparison of a large cluster never keeps a decision waiting for long."""
    world, steps = World(), 0
    for number in range(50):
        world.set(allocated(f"p{number}", node="n1", memory=1, card=number % 4))

    def count() -> None:
        nonlocal steps
        steps += 1

    assert world.differences(count) == []
    of_pods = ("shown", "reserved", "in a quota", "in a queue", "compared", "in the sums of a quota", "of a queue")
    assert steps == 50 * len(of_pods) + 2 * len(("cards", "capacity"))


def test_pods_of_a_gang_that_is_being_decided_are_no_difference() -> None:
    """They are assumed on nodes only as long as the decision lasts; afterwards they would be one."""
    made = World().state
    pods = [
        pod(
            f"m{index}",
            memory=10,
            labels={"gpu.scheduling/gang": "train"},
            annotations={"gpu.scheduling/gang-min-members": "2"},
        )
        for index in range(2)
    ]
    informer = Informer(cast("Api", None), PODS, Pod, on_upsert=made.set_pod, on_delete=made.drop_pod)
    for each in pods:
        informer.add_if_new(each)
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    deciding = GangCycle(cycle_of(made)).schedule(gang, made.queue.take(list(gang.waiting)))
    while not gang.nodes:
        advance(deciding)
    assert finish(differences(made, informer)) == []
    finish(deciding)
    assert {each.kind for each in finish(differences(made, informer))} == {"pod", "queue"}
