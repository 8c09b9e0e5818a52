"""What the loop would do with a pod that does not exist yet. Nothing is reserved, written or told to anybody."""

from collections.abc import Collection
from typing import Final

from allocation.reasons import CardReason
from scheduler import explanation
from scheduler.explanation_api import Explanation, NodeExplanation
from scheduler.foresight import Foresight, foresee
from scheduler.simulation_api import (
    Diagnosis,
    FilterDetail,
    FilterStage,
    GpuSchedulerState,
    NodeStatus,
    NodeToStatus,
    ScheduleResult,
    Simulation,
    SimulationError,
)
from scheduler.state import State
from scheduler.submission import Submission

_NODES: Final = "NodePredicates"
_CARDS: Final = "GPUCards"


def simulate(state: State, submitted: Submission, *, cards_of: Collection[str] | None = None) -> Simulation:
    """Answer what would become of a pod now; `cards_of` as in `scheduler.explanation`."""
    seen = foresee(state, submitted.pod)
    told = explanation.of_foresight(state, submitted.pod, seen, cards_of=cards_of)
    names = tuple(node.name for node in told.nodes)
    return Simulation(
        schedule_result=_result(told),
        filter_detail=FilterDetail(_stages(names, seen, told) if seen.wish is not None else ()),
        error=_error(told, seen),
        gpu_scheduler_state=_cards(told),
        warnings=submitted.warnings,
        explanation=told,
    )


def not_admitted(reason: str) -> Simulation:
    """Answer that a pod could not even be created."""
    return Simulation(error=SimulationError("NotAdmitted", reason))


def _result(told: Explanation) -> ScheduleResult:
    if told.outcome != "fits":
        return ScheduleResult()
    return ScheduleResult(told.node, len(told.nodes), sum(node.fits for node in told.nodes))


def _stages(names: tuple[str, ...], seen: Foresight, told: Explanation) -> tuple[FilterStage, ...]:
    open_ = tuple(name for name in names if name not in seen.refusals)
    fitting = tuple(node.name for node in told.nodes if node.fits)
    return (
        FilterStage(_NODES, names, open_, tuple(name for name in names if name in seen.refusals)),
        FilterStage(_CARDS, open_, fitting, tuple(name for name in open_ if name not in fitting)),
    )


def _error(told: Explanation, seen: Foresight) -> SimulationError | None:
    if told.outcome == "fits":
        return None
    if told.outcome != "waits":
        return SimulationError("Held", told.note)
    statuses = {node.name: _status(node, seen) for node in told.nodes if not node.fits}
    plugins = tuple(sorted({status.plugin for status in statuses.values()}))
    return SimulationError("FitError", told.note, len(told.nodes), Diagnosis(plugins, NodeToStatus(statuses)))


def _status(node: NodeExplanation, seen: Foresight) -> NodeStatus:
    return NodeStatus(
        code="Unschedulable" if node.curable else "UnschedulableAndUnresolvable",
        plugin=_NODES if node.name in seen.refusals else _CARDS,
        reasons=tuple(sorted(node.counts)) or (node.reason,),
        message=node.reason,
    )


def _cards(told: Explanation) -> GpuSchedulerState:
    """Answer the cards of the nodes that take the pod, by what they say to its first container."""
    fitting = [node for node in told.nodes if node.fits and node.cards]
    scores = {node.name: {c.uuid: c.verdicts[0] for c in node.cards if c.verdicts} for node in fitting}
    fits = CardReason.FITS.name
    return GpuSchedulerState(
        {node.name: tuple(card.uuid for card in node.cards) for node in fitting},
        {name: {uuid: v.score for uuid, v in found.items() if v.verdict == fits} for name, found in scores.items()},
        {name: {uuid: v.score for uuid, v in found.items() if v.verdict != fits} for name, found in scores.items()},
        tuple(dict.fromkeys(share.uuid for share in told.shares)),
    )
