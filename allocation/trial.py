"""A pod tried on one node, container by container, with what each card said: the placement itself, watched."""

import msgspec

from allocation.constraints import Constraints
from allocation.fit import ABSENT, verdicts
from allocation.ledger import Ledger
from allocation.node_cards import NodeCards
from allocation.order import Choice
from allocation.placement import cards_of, place_on
from allocation.quota import Room
from allocation.reasons import CardReason
from allocation.rejection import Rejection
from allocation.request import ContainerRequest, PodRequest
from allocation.score import card_scores


class Trial(msgspec.Struct, frozen=True):
    """One container on the cards of one node.

    Attributes:
        container: its name.
        verdicts: by position; those that fit are chosen among.
        scores: how full each card would be with the container, 0 to 30; by position.
        chosen: positions, in the order in which the container sees them.
    """

    container: str
    verdicts: tuple[CardReason, ...]
    scores: tuple[float, ...]
    chosen: tuple[int, ...] = ()


def fitting(
    ledger: Ledger, request: PodRequest, node: str, *, constraints: Constraints, room: Room
) -> tuple[Trial, ...]:
    """Answer what becomes of each GPU container on a node that takes the pod."""
    trials: list[Trial] = []
    row = ledger.row(node)

    def watch(container: ContainerRequest, cards: NodeCards, room: Room, choice: Choice) -> None:
        if row is not None:
            columns = cards_of(ledger, row, cards, constraints)
            judged = verdicts(columns, container, mutex="mutex" in constraints.card_policies, room=room)
            reasons = tuple(CardReason(code) for code in judged.tolist() if code != ABSENT)
            trials.append(Trial(container.name, reasons, _scores(cards, container, constraints), choice.positions))

    place_on(ledger, request, node, constraints=constraints, room=room, watcher=watch)
    return tuple(trials)


def rejected(
    ledger: Ledger, request: PodRequest, node: str, rejection: Rejection, *, constraints: Constraints
) -> tuple[Trial, ...]:
    """Answer what the cards of a node said that rejected a container of the pod; nothing where none was asked."""
    row, inventory, container = ledger.row(node), ledger.inventory(node), request.container(rejection.container)
    if row is None or inventory is None or container is None or not rejection.judged:
        return ()
    scores = _scores(NodeCards(ledger, row, constraints), container, constraints)
    return (Trial(container.name, rejection.verdicts, scores),)


def _scores(cards: NodeCards, container: ContainerRequest, constraints: Constraints) -> tuple[float, ...]:
    positions = range(len(cards.numa))
    return tuple(card_scores(cards.total, cards.used, container, constraints.weights, positions).values())
