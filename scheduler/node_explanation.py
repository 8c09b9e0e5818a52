"""What each node, and each of its cards, says of a pod."""

from collections.abc import Collection, Iterator, Sequence

from allocation import trial
from allocation.card_table import CORES, MEMORY, SLOTS
from allocation.rejection import Rejection
from allocation.trial import Trial
from scheduler.cycle import Chosen
from scheduler.explanation_api import Amount, CardExplanation, CardVerdict, NodeExplanation
from scheduler.foresight import Foresight
from scheduler.objects import Pod
from scheduler.state import State


def nodes(state: State, pod: Pod, seen: Foresight, *, cards_of: Collection[str] | None) -> Iterator[NodeExplanation]:
    """Answer every node by name; with the cards of those in `cards_of`, where that is None of all."""
    scores = seen.judged.scores
    chosen = seen.decision.node if isinstance(seen.decision, Chosen) else ""
    for name in sorted({*scores, *seen.judged.rejections, *seen.refusals}):
        rejection = seen.judged.rejections.get(name)
        wants_cards = cards_of is None or name in cards_of
        yield NodeExplanation(
            name=name,
            fits=name in scores,
            chosen=name == chosen,
            reason=str(rejection) if rejection is not None else seen.refusals.get(name, ""),
            curable=rejection.resolvable if rejection is not None else _is_curable(state, pod, name, seen),
            container=rejection.container if rejection is not None else "",
            counts={reason.name: count for reason, count in rejection.counts.items()} if rejection is not None else {},
            score=scores.get(name),
            cards=_cards(state, name, _trials(state, pod, seen, name, rejection)) if wants_cards else (),
        )


def _is_curable(state: State, pod: Pod, node: str, seen: Foresight) -> bool:
    """Whether what a node refuses for is that other pods are there."""
    return node in seen.refusals and state.fleet.is_open_to(pod, node)


def _trials(state: State, pod: Pod, seen: Foresight, node: str, rejection: Rejection | None) -> Sequence[Trial]:
    wish = seen.wish
    if wish is None or not wish.request or wish.fixed is not None or node in seen.refusals:
        return ()
    if rejection is not None:
        return trial.rejected(state.ledger, wish.request, node, rejection, constraints=wish.constraints)
    room = state.quotas.room(pod.metadata.namespace)
    return trial.fitting(state.ledger, wish.request, node, constraints=wish.constraints, room=room)


def _cards(state: State, node: str, trials: Sequence[Trial]) -> tuple[CardExplanation, ...]:
    ledger = state.ledger
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return ()
    count = len(inventory.cards)
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
        )
        for position, card in enumerate(inventory.cards)
    )


def _verdict(tried: Trial, position: int) -> CardVerdict:
    return CardVerdict(
        container=tried.container,
        verdict=tried.verdicts[position].name,
        score=round(tried.scores[position], 4),
        chosen=position in tried.chosen,
    )
