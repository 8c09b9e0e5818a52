"""The cost of fair sharing: the next pod of 1,000 GpuQueues, its decision, and sweeps after a card is freed."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from allocation import names
from allocation.fairness.queue_spec import QueueSpec
from allocation.label_selector import LabelSelector
from allocation.settings import AllocationSettings
from allocation.steps import finish
from benchmarks import fleets
from benchmarks.pace import within
from benchmarks.results import Row, Sample, microseconds, percentile
from cluster import process
from cluster.gpu_queue import GpuQueue, QueueMeta
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.objects import Node, Pod
from scheduler.queue.entry import Entry, Rejected
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState

NAME = "queue"
_LARGE_MIB: Final = 41_000
"""A card takes one of these pods."""
CREATED: Final = "2026-01-01T00:00:00Z"
"""When all objects were created."""


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run.

    Attributes:
        nodes: with eight cards each.
        pods: that wait.
        queues: to which they belong in turn.
        shapes: of different requests.
        decisions: that are measured.
        sweeps: that are measured.
    """

    nodes: int
    pods: int
    queues: int
    shapes: int
    decisions: int
    sweeps: int


FULL: Final = Sizes(nodes=5_000, pods=10_000, queues=1_000, shapes=50, decisions=3_000, sweeps=200)
_SMOKE: Final = Sizes(nodes=20, pods=100, queues=10, shapes=5, decisions=20, sweeps=5)


class Scheduler:
    """The queue, the state and the cycle of a scheduler, without an API server."""

    def __init__(self, sizes: Sizes, *, queues: int, tiers: int = 1) -> None:
        self.cycle: SchedulingCycle
        make_queue = partial(
            SchedulingQueue,
            clock=lambda: 0.0,
            first_backoff=1.0,
            longest_backoff=1.0,
            may_fit=lambda kind: self.cycle.may_fit(kind),  # noqa: PLW0108 -- it is made below
        )
        self.state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=lambda: 0.0)
        self.queue = self.state.queue
        self.cycle = SchedulingCycle(self.state)
        self.has_queues = queues > 0
        for number in range(sizes.nodes):
            self.state.set_node(msgspec.convert(_node(fleets.node(number)), Node))
            self.state.ledger.set_node(fleets.inventory(number))
            self.state.fair_share.touch(fleets.node(number))
        for number in range(queues):
            spec = QueueSpec(weight=1 + number % 7, priority=number % tiers, namespace_selector=LabelSelector())
            self.state.limits.set_queue(GpuQueue(QueueMeta(name=f"queue-{number}", creation_timestamp=CREATED), spec))

    def fill(self) -> None:
        """Place another pod on each card."""
        for number in range(len(self.state.node_cache)):
            name = fleets.node(number)
            for card in fleets.inventory(number).cards:
                self.state.ledger.assume(f"full-{card.uuid}", name, (fleets.charge(card.uuid, fleets.MEMORY_MIB),))

    def free(self, number: int) -> None:
        """Free a card."""
        (card, *_) = fleets.inventory(number).cards
        self.state.ledger.release(f"full-{card.uuid}")

    def decide(self, entry: Entry) -> ScheduleResult:
        """Schedule a pod; if a node takes it, it leaves the queue, as after its Binding."""
        result = finish(self.cycle.schedule(entry.pod, explain=entry.explain))
        if result is None:
            raise SystemExit("queue: the state changed during a decision")
        return result

    def put_back(self, entry: Entry, result: ScheduleResult) -> None:
        """Let a rejected pod wait, and one that was placed leave the queue."""
        if isinstance(result, Scheduled):
            self.queue.remove(entry.pod.uid)
        else:
            self.queue.add_unschedulable(entry, result)

    def settle(self) -> None:
        """Schedule until no pod is due."""
        while (entry := self.queue.pop_due()) is not None:
            self.put_back(entry, self.decide(entry))


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    sizes = _SMOKE if smoke else FULL
    process.settle()
    yield from asyncio.run(_order(sizes))
    yield from asyncio.run(_sweeps(sizes))
    yield from asyncio.run(_tiers(sizes))
    yield from asyncio.run(_different(sizes))


# ---- the next pod ----------------------------------------------------------------------------------------------------


async def _order(sizes: Sizes) -> list[tuple[Row, Sample]]:
    """Measure pops, and decisions with and without GpuQueues in turns."""
    shared, plain = Scheduler(sizes, queues=sizes.queues), Scheduler(sizes, queues=0)
    pops: dict[bool, list[float]] = {True: [], False: []}
    decisions: dict[bool, list[float]] = {True: [], False: []}
    for each in (shared, plain):
        add_pods(each, sizes)
    for number in range(sizes.decisions):
        for is_shared in (True, False) if number % 2 else (False, True):
            scheduler = shared if is_shared else plain
            popped, decided = await one(scheduler)
            if number >= sizes.decisions // 10:
                pops[is_shared].append(popped)
                decisions[is_shared].append(decided)
    subject = f"{sizes.pods:,} waiting pods, {sizes.queues:,} queues, {sizes.shapes} shapes, {sizes.nodes:,} nodes"
    p50 = percentile(pops[True], 50) * 1e6
    ratio = percentile(decisions[True], 50) / percentile(decisions[False], 50)
    return [
        _row(f"next pod and its charge, {subject}", pops[True], microseconds(pops[True]),
             f"without GpuQueues {microseconds(pops[False])}", "p50 ≤ 20 µs", passed=within(p50, 20)),
        _row(f"decision, {subject}", decisions[True], f"{microseconds(decisions[True])}, {ratio:.2f} × without",
             f"without GpuQueues {microseconds(decisions[False])}", "! ≤ 1.10 ×", passed=ratio <= 1.1),
    ]  # fmt: skip


async def one(scheduler: Scheduler) -> tuple[float, float]:
    """Schedule the next pod, which fits; return the seconds for the order, and for the decision."""
    begin = time.perf_counter()
    entry = await scheduler.queue.pop()
    popped = time.perf_counter()
    result = scheduler.decide(entry)
    decided = time.perf_counter()
    scheduler.queue.charge(entry, 0.0, placed=True)
    charged = time.perf_counter()
    if not isinstance(result, Scheduled):
        raise SystemExit(f"queue: {entry.pod.metadata.name} does not fit: {result.note}")
    scheduler.put_back(entry, result)
    return popped - begin + charged - decided, decided - popped


# ---- a card is freed -------------------------------------------------------------------------------------------------


async def _sweeps(sizes: Sizes) -> list[tuple[Row, Sample]]:
    """Measure what follows when a card of a full fleet is freed."""
    scheduler = Scheduler(sizes, queues=sizes.queues)
    scheduler.fill()
    add_pods(scheduler, sizes, memory=_LARGE_MIB)
    scheduler.settle()
    wakes, sweeps = [], []
    for number in range(min(sizes.sweeps, sizes.nodes)):
        scheduler.free(number)
        begin = time.perf_counter()
        scheduler.queue.notify(ClusterEvent.POD_REMOVED)
        wakes.append(time.perf_counter() - begin)
        scheduler.settle()
        sweeps.append(time.perf_counter() - begin)
    subject = f"{sizes.pods:,} waiting pods, {sizes.queues:,} queues, {sizes.shapes} shapes"
    wake, sweep = percentile(wakes, 50) * 1e3, percentile(sweeps, 50) * 1e3
    return [
        _row(f"event, {subject}", wakes, microseconds(wakes), "", "! p50 ≤ 100 µs", passed=within(wake, 0.1)),
        _row(f"sweep after a card is freed, until no pod is due, {subject}", sweeps, microseconds(sweeps), "",
             "p50 ≤ 2000 µs", passed=within(sweep, 2)),
    ]  # fmt: skip


# ---- tiers -----------------------------------------------------------------------------------------------------------


async def _tiers(sizes: Sizes) -> list[tuple[Row, Sample]]:
    """Measure pops while queues are in two tiers, of which the higher has all that it needs."""
    scheduler = Scheduler(sizes, queues=sizes.queues, tiers=2)
    add_pods(scheduler, sizes)
    pops = [(await one(scheduler))[0] for _ in range(sizes.decisions)]
    subject = f"{sizes.pods:,} waiting pods, {sizes.queues:,} queues in two tiers, {sizes.shapes} shapes"
    full = Scheduler(sizes, queues=sizes.queues, tiers=2)
    full.fill()
    add_pods(full, sizes, memory=_LARGE_MIB)
    full.settle()
    sweeps = []
    for number in range(min(sizes.sweeps, sizes.nodes)):
        full.free(number)
        begin = time.perf_counter()
        full.queue.notify(ClusterEvent.POD_REMOVED)
        full.settle()
        sweeps.append(time.perf_counter() - begin)
    p50, sweep = percentile(pops, 50) * 1e6, percentile(sweeps, 50) * 1e3
    return [
        _row(f"next pod and its charge, {subject}", pops, microseconds(pops), "",
             "p50 ≤ 20 µs", passed=within(p50, 20)),
        _row(f"sweep of the higher tier after a card is freed, {subject}", sweeps, microseconds(sweeps), "",
             "p50 ≤ 2000 µs", passed=within(sweep, 2)),
    ]  # fmt: skip


# ---- pods that are all different -------------------------------------------------------------------------------------


async def _different(sizes: Sizes) -> list[tuple[Row, Sample]]:
    """Measure decisions of pods that fit, with and without many waiting pods of which no two are equal."""
    alone, beside = Scheduler(sizes, queues=sizes.queues), Scheduler(sizes, queues=sizes.queues)
    reasons = frozenset({"CardInsufficientMemory"})
    for number in range(sizes.pods):
        beside.state.set_pod(_pod(f"different-{number}", number % sizes.queues, fleets.MEMORY_MIB + 1 + number))
    for _ in range(sizes.pods):
        entry = await beside.queue.pop()
        beside.queue.add_unschedulable(entry, Rejected("full", reasons, kind=entry.pod.uid.encode()))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for each in (alone, beside):
        add_pods(each, sizes)
    for number in range(sizes.decisions):
        for is_alone in (True, False) if number % 2 else (False, True):
            popped, decided = await one(alone if is_alone else beside)
            if number >= sizes.decisions // 10:
                seconds[is_alone].append(popped + decided)
    ratio = percentile(seconds[False], 50) / percentile(seconds[True], 50)
    what = f"next pod and its decision beside {sizes.pods:,} waiting pods that are all different"
    figure = f"{microseconds(seconds[False])}, {ratio:.2f} × without them"
    reference = f"without them {microseconds(seconds[True])}"
    return [_row(what, seconds[False], figure, reference, "! ≤ 1.10 ×", passed=ratio <= 1.1)]


# ---- objects ---------------------------------------------------------------------------------------------------------


def _row(
    what: str, seconds: Sequence[float], figure: str, reference: str, target: str, *, passed: bool
) -> tuple[Row, Sample]:
    return Row(NAME, what, figure, reference, target, passed), Sample(NAME, what, list(seconds))


def add_pods(scheduler: Scheduler, sizes: Sizes, *, memory: int = 2_000) -> None:
    """Create the pods that wait; neighbours differ in their queues and in their shapes."""
    for number in range(sizes.pods):
        shape = (number + number // sizes.queues) % sizes.shapes
        scheduler.state.set_pod(
            _pod(f"waits-{number}", number % sizes.queues, memory + 100 * shape, names_queue=scheduler.has_queues)
        )


def _pod(name: str, queue: int, memory: int, *, names_queue: bool = True) -> Pod:
    return msgspec.convert(pod_body(name, queue, memory, names_queue=names_queue), Pod)


def pod_body(name: str, queue: int, memory: int, *, names_queue: bool = True) -> dict[str, Any]:
    """Return a pod of a namespace of the queue, which it names or not."""
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": "1"}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    meta = {
        "name": name,
        "namespace": f"team-{queue}",
        "uid": name,
        "creationTimestamp": CREATED,
        "labels": {names.QUEUE: f"queue-{queue}"} if names_queue else {},
    }
    return {"metadata": meta, "spec": {"schedulerName": "tranche", "containers": containers}}


def _node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
