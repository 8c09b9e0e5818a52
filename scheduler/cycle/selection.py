"""Selects the node of an evaluation, and puts the runners-up, or the reasons of the other nodes, into words."""

from functools import partial

from allocation.reasons import PodReason
from allocation.steps import Steps
from scheduler.cycle import messages, remedies
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.metrics.labels import Path
from scheduler.state.cluster_state import ClusterState


def select(
    state: ClusterState, evaluated: Evaluation, *, path: Path = "full", total: int | None = None
) -> Steps[ScheduleResult]:
    """Return the best node, or the reasons; of `total` nodes, those that were not evaluated do not fit."""
    if not evaluated.scores:
        return (yield from _rejected(state, evaluated, path=path))
    scores, fitting = evaluated.scores, len(evaluated.scores)
    rejected = len(evaluated.rejections) + len(evaluated.nodes.rejections) + len(evaluated.others)
    if total is not None:
        rejected = total - fitting
    if evaluated.allocation is not None:
        left = None
        if evaluated.preferences is None and evaluated.values and evaluated.stranding is not None:
            containers = evaluated.requirements.request.gpu_containers
            left = partial(evaluated.stranding.left, state.ledger, evaluated.allocation.node, containers)
        note = messages.find_fit(scores, fitting=fitting, rejected=rejected, left=left)
        return Scheduled.on_cards(
            state.ledger, evaluated.requirements, evaluated.allocation, evaluated.charges, note=note, path=path
        )
    node = next(iter(scores))
    if evaluated.preferences is not None:
        note = messages.find_fit(scores, fitting=fitting, rejected=rejected)
    else:
        note = f"find fit node({node}), {messages.counted(rejected)} not fit, {messages.counted(fitting)} fit"
    return Scheduled(node, evaluated.requirements.request, None, note, path=path)


def _rejected(state: ClusterState, evaluated: Evaluation, *, path: Path) -> Steps[Unschedulable]:
    yield
    reasons, requirements = evaluated.reasons(), evaluated.requirements
    yield
    hints = remedies.of(requirements.request, requirements.constraints, ledger=state.ledger, reasons=reasons)
    note = yield from messages.no_fit(
        evaluated.rejections,
        evaluated.nodes.rejections,
        others=evaluated.others,
        rejection_of_others=evaluated.rejection_of_others,
        hints=hints,
    )
    return Unschedulable(note, reasons or frozenset({PodReason.NoNode.value}), path=path)
