"""Evaluates a pod on one node, container by container, and records the verdict of each card.

It observes the placement itself (`place_on`), so it cannot disagree with the decision.
"""

import msgspec

from allocation.constraints import Constraints
from allocation.ledger.ledger import Ledger
from allocation.placement.card_selection import Choice
from allocation.placement.fit import ABSENT, verdicts
from allocation.placement.node_cards import NodeCards
from allocation.placement.placement import cards_of, place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.placement.score import card_scores
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, PodRequest


class Trial(msgspec.Struct, frozen=True):
    """One container on the cards of one node.

    Attributes:
        container: its name.
        verdicts: of each card, by position.
        scores: how full each card would be with the container, 0 to 30; by position.
        chosen: positions, in the order in which the container sees the cards.
    """

    container: str
    verdicts: tuple[CardReason, ...]
    scores: tuple[float, ...]
    chosen: tuple[int, ...] = ()


def fitting(ledger: Ledger, query: PlacementQuery, node: str) -> tuple[Trial, ...]:
    """Return the trial of each GPU container on a node that takes the pod."""
    trials: list[Trial] = []
    row, constraints = ledger.row(node), query.constraints

    def record(container: ContainerRequest, cards: NodeCards, headroom: Headroom, choice: Choice) -> None:
        if row is not None:
            columns = cards_of(ledger, row, cards, constraints)
            codes = verdicts(columns, query.for_container(container, headroom)).tolist()
            reasons = tuple(CardReason(code) for code in codes if code != ABSENT)
            trials.append(Trial(container.name, reasons, _scores(cards, container, constraints), choice.positions))

    place_on(ledger, query, node, observer=record)
    return tuple(trials)


def rejected(
    ledger: Ledger, request: PodRequest, node: str, rejection: Rejection, *, constraints: Constraints
) -> tuple[Trial, ...]:
    """Return the trial of the container that a node rejected; empty if the rejection is not about its cards."""
    row, inventory, container = ledger.row(node), ledger.inventory(node), request.container(rejection.container)
    if row is None or inventory is None or container is None or not rejection.judged:
        return ()
    scores = _scores(NodeCards(ledger, row, constraints), container, constraints)
    return (Trial(container.name, rejection.verdicts, scores),)


def _scores(cards: NodeCards, container: ContainerRequest, constraints: Constraints) -> tuple[float, ...]:
    positions = range(len(cards.numa))
    scores = card_scores(positions, total=cards.total, used=cards.used, request=container, weights=constraints.weights)
    return tuple(scores.values())
