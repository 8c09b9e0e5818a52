"""The cost of preemption: choosing pods in a full fleet, and what that costs the decisions of all other pods."""

import gc
import random
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.fairness.quota_spec import QuotaSpec, TotalQuota
from allocation.names import ALLOCATION
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.wire.record import encode
from benchmarks import fleets
from benchmarks.pace import within
from benchmarks.results import Row, Sample, microseconds, milliseconds, percentile
from benchmarks.timing import Timed, timed
from cluster import process
from cluster.disruption_budget import PodDisruptionBudget
from cluster.gpu_quota import GpuQuota, QuotaMeta
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.holds import Hold
from scheduler.objects import Node, Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.preemption.node_search import Preemption
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import PreemptionSettings
from scheduler.state.cluster_state import ClusterState

NAME = "preemption"
_CREATED: Final = "2026-01-01T00:00:00Z"
_PRIORITIES: Final = 5
_NOMINEES: Final = 8
_FIRST_MS, _MOST_MS, _LONGEST_STEP_MS, _MOST_MIB = 500, 100, 10, 32


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run.

    Attributes:
        nodes: with eight full cards each, on which ten pods run.
        choices: that are measured of each kind.
        decisions: that are measured.
    """

    nodes: int
    choices: int
    decisions: int


FULL: Final = Sizes(nodes=5_000, choices=30, decisions=3_000)
_SMOKE: Final = Sizes(nodes=20, choices=2, decisions=20)


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    sizes = _SMOKE if smoke else FULL
    yield from _choices(sizes)
    yield from _decisions(sizes)


# ---- choices ---------------------------------------------------------------------------------------------------------


def _choices(sizes: Sizes) -> Iterator[tuple[Row, Sample]]:
    """Measure choices in a full fleet, and the memory of the columns that are kept between them."""
    state = _full(sizes)
    process.settle()
    fleet = f"{sizes.nodes:,} nodes, {len(state.running):,} pods of {_PRIORITIES} priorities"
    one, node = _pod("one", priority=9), _pod("node", priority=9, cards=fleets.CARDS)
    first = [_choose(_chooser(state), one) for _ in range(max(1, sizes.choices // 10))]
    yield from _rows(f"first choice of a term, which reads all nodes, {fleet}", first, most=_FIRST_MS)
    chooser = _chooser(state)
    _choose(chooser, one)
    for changed in (1, 100):
        timed = []
        for number in range(sizes.choices):
            _touch(state, range(number * changed, (number + 1) * changed), sizes)
            timed.append(_choose(chooser, one))
        yield from _rows(f"later choice after {changed} changed nodes, {fleet}", timed)
    timed = [_choose(chooser, node) for _ in range(sizes.choices)]
    yield from _rows(f"choice of all pods of a node, {fleet}", timed)
    hopeless = _pod("hopeless", priority=1, cards=fleets.CARDS)
    timed = [_choose(chooser, hopeless, helps=False) for _ in range(sizes.choices)]
    yield from _rows(f"hopeless choice, too little would be free, {fleet}", timed)
    guarded = _chooser(state, _budget())
    _choose(guarded, one, helps=False)
    timed = [_choose(guarded, one, helps=False) for _ in range(sizes.choices)]
    yield from _rows(f"hopeless choice, all pods are protected by a budget, {fleet}", timed)
    state.limits.set_gpu_quota(_quota(pods=len(state.running)))
    timed = [_choose(chooser, one) for _ in range(sizes.choices)]
    yield from _rows(f"choice while the quota of all these pods is exhausted, {fleet}", timed)
    begin = time.perf_counter()
    mib, what = _memory(state) / 2**20, f"memory of the columns, {fleet}"
    yield (
        Row(NAME, what, f"{mib:.1f} MiB", "", f"! ≤ {_MOST_MIB} MiB", mib <= _MOST_MIB),
        Sample(NAME, what, [time.perf_counter() - begin]),
    )


def _memory(state: ClusterState) -> int:
    """Return the bytes that are kept between choices."""
    tracemalloc.start()
    chooser = _chooser(state)
    finish(chooser.refresh())
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


def _choose(chooser: Chooser, pod: Pod, *, helps: bool = True) -> Timed:
    """Choose for a pod; `helps` says whether pods can be preempted for it."""
    took, found = timed(chooser.choose(pod))
    if isinstance(found, Preemption) is not helps:
        raise SystemExit(f"preemption: wrong choice for {pod.metadata.name}: {found}")
    return took


def _rows(what: str, timed: Sequence[Timed], *, most: int = _MOST_MS) -> Iterator[tuple[Row, Sample]]:
    seconds, steps = [each.total for each in timed], [each.longest_step for each in timed]
    p50, longest = percentile(seconds, 50) * 1e3, max(steps) * 1e3
    yield _row(what, seconds, milliseconds(seconds), f"p50 ≤ {most} ms", passed=within(p50, most))
    figure, passed = f"{longest:.2f} ms", within(longest, _LONGEST_STEP_MS)
    yield _row(f"longest step (processor time): {what}", steps, figure, f"! ≤ {_LONGEST_STEP_MS} ms", passed=passed)


def _touch(state: ClusterState, numbers: Sequence[int], sizes: Sizes) -> None:
    """Let nodes change, by the end of a pod that starts again."""
    for number in numbers:
        name = fleets.node(number % sizes.nodes)
        reservation = next(state.ledger.reservations(name))
        pod = state.running[reservation.uid]
        state.drop_pod(pod)
        state.set_pod(pod)


# ---- decisions -------------------------------------------------------------------------------------------------------


def _decisions(sizes: Sizes) -> Iterator[tuple[Row, Sample]]:
    """Measure decisions of ordinary pods beside nominees, and of others where preemption is disabled, in turns."""
    plain, beside = _half_full(sizes), _half_full(sizes)
    _nominate(beside)
    chooser = _chooser(beside)
    finish(chooser.refresh())
    cycles = {False: SchedulingCycle(plain), True: SchedulingCycle(beside)}
    process.settle()
    for priority, whose in ((0, "a pod of low priority"), (99, "a pod of higher priority than the nominees")):
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(sizes.decisions):
            pod = _pod(f"p-{priority}-{number}", priority=priority, memory=2_000 + number % 50 * 100)
            for is_beside in (True, False) if number % 2 else (False, True):
                cycle = cycles[is_beside]
                begin = time.perf_counter()
                result = finish(cycle.schedule(pod))
                seconds[is_beside].append(time.perf_counter() - begin)
                if not isinstance(result, Scheduled):
                    raise SystemExit(f"preemption: {pod.metadata.name} does not fit: {result}")
            if number % 100 == 0:
                finish(chooser.refresh())
        warm = {is_beside: each[sizes.decisions // 10 :] for is_beside, each in seconds.items()}
        ratio = percentile(warm[True], 50) / percentile(warm[False], 50)
        what = f"decision for {whose} beside {_NOMINEES} nominees, {sizes.nodes:,} nodes"
        yield _row(
            what,
            warm[True],
            f"{microseconds(warm[True])}, {ratio:.2f} × without preemption",
            "! ≤ 1.10 ×",
            floor=f"without preemption {microseconds(warm[False])}",
            passed=ratio <= 1.1,
        )


def _nominate(state: ClusterState) -> None:
    """Hold a card each on the last nodes for pods that preempt others."""
    for number in range(_NOMINEES):
        pod = _pod(f"nominee-{number}", priority=9)
        name = sorted(state.ledger.nodes)[-1 - number]
        card = state.ledger.inventory(name)
        if card is None:
            raise SystemExit(f"preemption: {name} has no cards")
        charges = (fleets.charge(card.cards[0].uuid, fleets.MEMORY_MIB),)
        key, rank = state.fair_share.key(pod), state.fair_share.pod_rank(pod)
        state.holds.add(Hold(pod.uid, key, rank, name, charges, frozenset(), "preemption", 360.0), pod)


# ---- objects ---------------------------------------------------------------------------------------------------------


def _row(
    what: str, seconds: Sequence[float], figure: str, target: str, *, passed: bool, floor: str = ""
) -> tuple[Row, Sample]:
    return Row(NAME, what, figure, floor, target, passed), Sample(NAME, what, list(seconds))


def _state(nodes: int) -> ClusterState:
    """Return a state with empty nodes."""
    make_queue = partial(SchedulingQueue, clock=lambda: 0.0, first_backoff=1.0, longest_backoff=1.0)
    state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=lambda: 0.0)
    for number in range(nodes):
        name = fleets.node(number)
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        state.set_node(msgspec.convert({"metadata": meta, "status": {"allocatable": allocatable}}, Node))
        state.ledger.set_node(fleets.inventory(number))
        state.fair_share.touch(name)
    return state


def _full(sizes: Sizes) -> ClusterState:
    """Return a state in which ten pods use all cards of each node: two cards have two pods."""
    state, chance = _state(sizes.nodes), random.Random(1)
    for number in range(sizes.nodes):
        for place, at in enumerate((0, 1, *range(fleets.CARDS))):
            memory = fleets.MEMORY_MIB // (2 if at < 2 else 1)
            priority = chance.randrange(_PRIORITIES)
            state.set_pod(_running(number, at, memory, priority=priority, name=f"{number}-{place}"))
    return state


def _half_full(sizes: Sizes) -> ClusterState:
    """Return a state in which a pod runs on each second card."""
    state, chance = _state(sizes.nodes), random.Random(1)
    for number in range(sizes.nodes):
        for at in range(0, fleets.CARDS, 2):
            priority = chance.randrange(_PRIORITIES)
            state.set_pod(_running(number, at, fleets.MEMORY_MIB // 2, priority=priority, name=f"{number}-{at}"))
    return state


def _chooser(state: ClusterState, *budgets: PodDisruptionBudget) -> Chooser:
    known = DisruptionBudgets()
    for each in budgets:
        known.set(each)
    rules = Eligibility(state, budgets=known, settings=PreemptionSettings(), unix=lambda: 2e9)
    return Chooser(state, rules)


def _quota(*, pods: int) -> GpuQuota:
    """Return a quota that allows no more pods."""
    return GpuQuota(QuotaMeta(name="all", namespace="team"), QuotaSpec(total=TotalQuota(max_pods=pods)))


def _budget() -> PodDisruptionBudget:
    """Return a budget for all pods that allows no disruption."""
    meta = {"name": "all", "namespace": "team"}
    body = {"metadata": meta, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}
    return msgspec.convert(body, PodDisruptionBudget)


def _running(number: int, at: int, memory: int, *, priority: int, name: str) -> Pod:
    """Return a pod that runs on a card of a node."""
    node = fleets.node(number)
    share = CardShare(fleets.inventory(number).cards[at].uuid, at, memory, 0)
    annotations = {ALLOCATION: encode(Allocation(node, {"main": (share,)}))}
    return _pod(name, priority=priority, memory=memory, node=node, annotations=annotations)


def _pod(
    name: str,
    *,
    priority: int,
    memory: int = fleets.MEMORY_MIB,
    cards: int = 1,
    node: str = "",
    annotations: dict[str, str] | None = None,
) -> Pod:
    amounts = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory)}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    meta: dict[str, Any] = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": _CREATED}
    spec = {"schedulerName": "tranche", "nodeName": node, "priority": priority, "containers": containers}
    status = {"phase": "Running" if node else "Pending"}
    body = {"metadata": {**meta, "annotations": annotations or {}}, "spec": spec, "status": status}
    return msgspec.convert(body, Pod)
