"""The longest step of decisions and explanations: for as long, neither a Lease is renewed nor a call answered."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from allocation.names import NODE_POLICY
from allocation.settings import AllocationSettings
from allocation.steps import Steps
from benchmarks import fleets
from benchmarks.extender import fill
from benchmarks.pace import within
from benchmarks.results import Row, Sample
from benchmarks.timing import timed
from cluster import process
from scheduler.api import capacity, capacity_slice, capacity_stranded, explanation
from scheduler.api.evictions import Evictions
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.consolidation.movable import Movable
from scheduler.consolidation.planner import Planner
from scheduler.cycle import lifts
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.extender import filtering
from scheduler.extender.wire import Args
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import ConsolidationSettings, PreemptionSettings
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod

NAME = "steps"
NODES: Final = 5_000
_TIMES: Final = 20
MOST_MS: Final = 10
_COPIES: Final = 1_000
_HOLDS: Final = (0, 1, 8, 64)
_LABELS: Final = 20
_LABEL: Final = "benchmark/{}"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for what, steps in measured(100, times=2) if smoke else measured(NODES, times=_TIMES):
        row, longest = f"longest step (processor time): {what}", max(steps) * 1e3
        yield (
            Row(NAME, row, f"{longest:.2f} ms", "", f"! ≤ {MOST_MS} ms", within(longest, MOST_MS)),
            Sample(NAME, row, steps),
        )


def measured(nodes: int, *, times: int) -> Iterator[tuple[str, list[float]]]:
    """Return the seconds of the longest step of each computation, as often as it is repeated."""
    make_queue = partial(SchedulingQueue, clock=lambda: 0.0, first_backoff=1.0, longest_backoff=1.0)
    state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=lambda: 0.0)
    fill(state, nodes, labels=lambda number: {_LABEL.format(at): "true" for at in range(_LABELS) if (number + at) % 2})
    for number in range(nodes):
        if not any(state.ledger.reservations(fleets.node(number))):  # eight free cards
            state.ledger.record(f"one-{number}", fleets.node(number), (fleets.charge(fleets.card(number)),))
    cycle = SchedulingCycle(state)
    rules = Eligibility(state, budgets=DisruptionBudgets(), settings=PreemptionSettings(), unix=lambda: 2e9)
    movable = Movable(
        state,
        budgets=DisruptionBudgets(),
        settings=ConsolidationSettings(),
        preemption=PreemptionSettings(),
        unix=lambda: 2e9,
    )
    evictions = Evictions(Chooser(state, rules), Planner(state, movable))
    names = state.ledger.nodes
    process.settle()

    def decide(pod: Pod) -> Steps[object]:
        decision = yield from cycle.schedule(pod)
        cycle.forget(pod)
        return decision

    def filter_(pod: Pod) -> Steps[object]:
        return filtering.filter_(state, Args.of_pod(pod, names), lift=lifts.lower(state, pod))

    computations: dict[str, Callable[[Pod], Steps[object]]] = {
        "decision": decide,
        "explanation": partial(explanation.explain, cycle, evictions=evictions),
        "/filter": filter_,
    }
    ask = partial(_ask_for_capacity, cycle)
    capacities = [timed(ask(_small(number, 0)))[0].longest_step for number in range(times)]
    yield f"capacity, {_COPIES} copies, {nodes:,} nodes", capacities
    for holds in _HOLDS:
        for number in range(len(state.holds), holds):
            _hold(state, number)
        for what, begin in computations.items():
            for why, pod in _PODS.items():
                steps = [timed(begin(pod(number, holds)))[0].longest_step for number in range(times)]
                yield f"{what}, {why}, {nodes:,} nodes, {holds} holds", steps


def _ask_for_capacity(cycle: SchedulingCycle, pod: Pod) -> Steps[object]:
    """Ask what is stranded, for the largest slice, and for a count."""
    submitted = SubmittedPod(PlannedPod.of(pod, ()), ())
    yield from capacity_stranded.stranded(cycle.state)
    yield from capacity_slice.largest(cycle, pod)
    return (yield from capacity.count(cycle, "slice", submitted, most=_COPIES, is_over=lambda: False))


def _hold(state: ClusterState, number: int) -> None:
    """Hold a card of one of the first nodes for a pod of low priority."""
    waits, node = _pod(f"waits-{number}", priority=0), fleets.node(number)
    charges = (fleets.charge(fleets.card(number)),)
    key, rank = state.fair_share.key(waits), state.fair_share.pod_rank(waits)
    state.holds.add(Hold(waits.uid, key, rank, node, charges, frozenset(), "preemption", 360.0), waits)


def _large(number: int, holds: int) -> Pod:
    """Return a pod that wants more free cards of a node than any has; no two have the same request."""
    return _pod(f"large-{holds}-{number}", cards=fleets.CARDS, memory=fleets.MEMORY_MIB - number - 100 * holds)


def _busy(number: int, holds: int) -> Pod:
    """Return a pod that wants more CPU than any node has."""
    return _pod(f"busy-{holds}-{number}", memory=1_000 + number + 100 * holds, cpu="1k")


def _small(number: int, holds: int) -> Pod:
    """Return a pod that most nodes take; no two have the same request."""
    return _pod(f"small-{holds}-{number}", memory=1_000 + number + 100 * holds)


def _choosy(number: int, holds: int) -> Pod:
    """Return a pod that many nodes take, those with a label that no other pod names."""
    return _pod(f"choosy-{holds}-{number}", selector={_LABEL.format(number % _LABELS): "true"})


def _plain(number: int, holds: int) -> Pod:
    """Return a pod without cards."""
    return _pod(f"plain-{holds}-{number}", cards=0)


def _spread(number: int, holds: int) -> Pod:
    """Return a pod without cards that goes to the node with the fewest pods."""
    return _pod(f"spread-{holds}-{number}", cards=0, annotations={NODE_POLICY: "spread"})


def _pod(
    name: str,
    *,
    priority: int = 9,
    cards: int = 1,
    memory: int = 10_000,
    cpu: str = "1",
    annotations: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
) -> Pod:
    amounts = {"cpu": cpu}
    if cards:
        amounts |= {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory)}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": annotations or {}}
    spec = {
        "schedulerName": "tranche",
        "priority": priority,
        "nodeSelector": selector or {},
        "containers": containers,
    }
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, Pod)


_PODS: Final = {
    "fits nowhere (too few free cards)": _large,
    "fits nowhere (too little CPU)": _busy,
    "fits (a new request)": _small,
    "fits (a new node selector)": _choosy,
    "fits (without cards)": _plain,
    "fits (without cards, node policy spread)": _spread,
}
"""The kinds of pods: each function is given the number of a pod, and that of the holds."""
