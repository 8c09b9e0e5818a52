"""The evaluation of a pod by each node and each of its cards."""

from collections.abc import Collection, Iterator, Sequence

from allocation.ledger.card_table import CORES, MEMORY, SLOTS, TFLOPS
from allocation.placement import bound_placement, card_verdicts
from allocation.placement.card_verdicts import Trial
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from scheduler.api import topology_explanation
from scheduler.api.explanation_types import Amount, CardExplanation, CardVerdict, NodeExplanation
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


def nodes(
    state: ClusterState,
    pod: Pod,
    result: ScheduleResult,
    evaluation: Evaluation,
    *,
    cards_of: Collection[str] | None,
) -> Iterator[NodeExplanation]:
    """Iterate over all nodes by name, with the cards of the nodes `cards_of`, or of all nodes if that is None."""
    scores, filtered = evaluation.scores, evaluation.nodes.rejections
    parts = evaluation.preferences.by_node() if evaluation.preferences is not None else {}
    chosen = result.node if isinstance(result, Scheduled) else ""
    for name in sorted({*scores, *evaluation.rejections, *filtered}):
        rejection = evaluation.rejections.get(name)
        refusal = rejection.node if rejection is not None else filtered.get(name)
        wants_cards = cards_of is None or name in cards_of
        is_chosen = name == chosen
        query = _query(state, pod, evaluation, name) if wants_cards or is_chosen else None
        trials = _trials(state, query, name, rejection) if query is not None else ()
        yield NodeExplanation(
            name=name,
            fits=name in scores,
            chosen=is_chosen,
            reason=refusal.coded_text if refusal is not None else str(rejection or ""),
            code=refusal.code.value if refusal is not None else "",
            resolvable=rejection.resolvable if rejection is not None else refusal is not None and refusal.resolvable,
            container=rejection.container if rejection is not None else "",
            counts={reason.name: count for reason, count in rejection.counts.items()} if rejection is not None else {},
            score=scores.get(name),
            cards=_cards(state, name, trials) if wants_cards else (),
            scores=parts.get(name, {}),
            topology=topology_explanation.of_trials(state, query, name, trials) if query is not None else (),
        )


def _query(state: ClusterState, pod: Pod, evaluation: Evaluation, node: str) -> PlacementQuery | None:
    """Return what was to be placed on a node; None if its cards were not evaluated."""
    requirements, bound = evaluation.requirements, evaluation.requirements.bound
    if not requirements.request or requirements.fixed is not None or node in evaluation.nodes.rejections:
        return None
    if state.ledger.row(node) is None:
        return None  # the node was removed after its evaluation
    headroom = state.requirements.headroom(pod)
    query = PlacementQuery(requirements.request, requirements.constraints, headroom)
    if bound is None:
        return query
    here = bound_placement.query_on(query, bound, bound_placement.by_node(state.ledger, bound).get(node, ()))
    return here if isinstance(here, PlacementQuery) else None


def _trials(state: ClusterState, query: PlacementQuery, node: str, rejection: Rejection | None) -> Sequence[Trial]:
    if rejection is not None:
        return card_verdicts.rejected(state.ledger, query, node, rejection)
    return card_verdicts.fitting(state.ledger, query, node)


def _cards(state: ClusterState, node: str, trials: Sequence[Trial]) -> tuple[CardExplanation, ...]:
    ledger = state.ledger
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return ()
    count = len(inventory.cards)
    trials = [each for each in trials if len(each.verdicts) == count]  # the cards may have changed after the evaluation
    total = ledger.total[:, row, :count]
    free = (total - ledger.used[:, row, :count]).tolist()
    totals = total.tolist()
    healthy, cordoned = ledger.healthy[row, :count].tolist(), ledger.cordoned[row, :count].tolist()
    return tuple(
        CardExplanation(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            healthy=healthy[position],
            cordoned=cordoned[position],
            memory_mib=Amount(free[MEMORY][position], totals[MEMORY][position]),
            cores=Amount(free[CORES][position], totals[CORES][position]),
            slots=Amount(free[SLOTS][position], totals[SLOTS][position]),
            verdicts=tuple(_verdict(each, position) for each in trials),
            tflops=Amount(free[TFLOPS][position], totals[TFLOPS][position]),
        )
        for position, card in enumerate(inventory.cards)
    )


def _verdict(trial: Trial, position: int) -> CardVerdict:
    return CardVerdict(
        container=trial.container,
        verdict=trial.verdicts[position].name,
        score=round(trial.scores[position], 4),
        chosen=position in trial.chosen,
    )
