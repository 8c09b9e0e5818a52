"""Simulates the scheduling of a pod that does not exist yet. A simulation reserves and writes nothing."""

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Final

from allocation.reasons import CardReason, PodReason
from allocation.steps import Steps
from scheduler.api import explanation
from scheduler.api.evictions import Evictions
from scheduler.api.explanation_types import CardVerdict, Explanation, NodeExplanation
from scheduler.api.gang_explanation import Rehearsed
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.queue_explanation import QUEUE_REASONS
from scheduler.api.simulation_types import (
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
from scheduler.cycle.cycle import SchedulingCycle

_NODES: Final = "NodePredicates"
_CARDS: Final = "GPUCards"
_CLAIMS: Final = "GpuClaims"
_BINDINGS: Final = "GPUBindings"
_QUEUES: Final = "GpuQueues"


def simulate(
    cycle: SchedulingCycle,
    submitted: SubmittedPod,
    *,
    evictions: Evictions,
    rehearsed: Rehearsed = None,
    cards_of: Collection[str] | None = None,
) -> Steps[Simulation]:
    """Return what would happen to the pod now; for the rest see `scheduler.api.explanation.explain`."""
    attempt = yield from cycle.dry_run(submitted.pod)
    explained = yield from explanation.of_dry_run(
        evictions, submitted.pod, attempt, rehearsed=rehearsed, cards_of=cards_of
    )
    names = tuple(node.name for node in explained.nodes)
    rejected = attempt.evaluation.nodes.rejections if attempt.evaluation is not None else None
    return Simulation(
        schedule_result=_result(explained),
        filter_detail=FilterDetail(_stages(names, rejected, explained) if rejected is not None else ()),
        error=_error(explained, rejected),
        gpu_scheduler_state=_cards(explained),
        warnings=(*submitted.warnings, *_gang_warnings(explained)),
        explanation=explained,
    )


def _gang_warnings(explained: Explanation) -> Iterator[str]:
    """Yield that the result is that of the pod alone, although it gets a node only together with others."""
    gang = explained.gang
    if gang is not None and gang.fitting is None and gang.placed < gang.size and gang.size > 1:
        yield (
            f"{gang.size} pods of gang {gang.name} get nodes together or not at all; the result is that of the pod"
            f" alone, as one of {gang.placed + gang.waiting} that exist then"
        )


def not_admitted(reason: str) -> Simulation:
    """Return the simulation of a pod that admission refuses."""
    return Simulation(error=SimulationError("NotAdmitted", reason))


def _result(explained: Explanation) -> ScheduleResult:
    if explained.outcome != "fits":
        return ScheduleResult()
    return ScheduleResult(explained.node, len(explained.nodes), sum(node.fits for node in explained.nodes))


def _stages(names: tuple[str, ...], rejected: Container[str], explained: Explanation) -> tuple[FilterStage, ...]:
    open_ = tuple(name for name in names if name not in rejected)
    fitting = tuple(node.name for node in explained.nodes if node.fits)
    return (
        FilterStage(_NODES, names, open_, tuple(name for name in names if name in rejected)),
        FilterStage(_CARDS, open_, fitting, tuple(name for name in open_ if name not in fitting)),
    )


def _error(explained: Explanation, rejected: Container[str] | None) -> SimulationError | None:
    """Return why the pod would not be scheduled; `rejected` is None if no node was evaluated."""
    if explained.outcome == "fits":
        return None
    if explained.outcome != "waits":
        return SimulationError("Held", explained.note)
    if rejected is None:
        waiting = Diagnosis((_plugin(explained.note),), NodeToStatus({}), pre_filter_msg=explained.note)
        return SimulationError("FitError", explained.note, diagnosis=waiting)
    statuses = {node.name: _status(node, rejected) for node in explained.nodes if not node.fits}
    plugins = tuple(sorted({status.plugin for status in statuses.values()}))
    return SimulationError("FitError", explained.note, len(explained.nodes), Diagnosis(plugins, NodeToStatus(statuses)))


def _plugin(note: str) -> str:
    """Return which part keeps a pod waiting for which no node was evaluated; its `note` begins with the reason."""
    if note.startswith(tuple(QUEUE_REASONS)):
        return _QUEUES
    return _CLAIMS if note.startswith(PodReason.GpuClaimNotFound) else _BINDINGS


def _status(node: NodeExplanation, rejected: Container[str]) -> NodeStatus:
    return NodeStatus(
        code="Unschedulable" if node.resolvable else "UnschedulableAndUnresolvable",
        plugin=_NODES if node.name in rejected else _CARDS,
        reasons=tuple(sorted(node.counts)) or (node.code,),
        message=node.reason,
    )


def _cards(explained: Explanation) -> GpuSchedulerState:
    """Return the cards of the nodes that take the pod, with their scores for its first container."""
    fitting = [node for node in explained.nodes if node.fits and node.cards]
    first = {node.name: {c.uuid: c.verdicts[0] for c in node.cards if c.verdicts} for node in fitting}
    return GpuSchedulerState(
        {node.name: tuple(card.uuid for card in node.cards) for node in fitting},
        {name: _scores(verdicts, fits=True) for name, verdicts in first.items()},
        {name: _scores(verdicts, fits=False) for name, verdicts in first.items()},
        tuple(dict.fromkeys(share.uuid for share in explained.shares)),
    )


def _scores(verdicts: Mapping[str, CardVerdict], *, fits: bool) -> dict[str, float]:
    return {
        uuid: each.score
        for uuid, each in verdicts.items()
        if each.score is not None and (each.verdict == CardReason.FITS.name) is fits
    }
