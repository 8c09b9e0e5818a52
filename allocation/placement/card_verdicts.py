"""Evaluates a pod on one node, container by container, and records the verdict of each card.

For a pod that fits it observes the placement itself (`place_on`), so it cannot disagree with the decision.
"""

from typing import Final

import msgspec
import numpy as np

from allocation.allocation import Allocation
from allocation.inventory import NodeInventory
from allocation.ledger.card_table import Flags
from allocation.ledger.ledger import Ledger
from allocation.placement import card_requests
from allocation.placement.card_requests import CardRequests
from allocation.placement.card_selection import Choice
from allocation.placement.fit import ABSENT, ConstraintMasks, resolvable
from allocation.placement.node_cards import NodeCards
from allocation.placement.placement import cards_of, judge, place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.placement.score import card_scores
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest

_OF_OTHERS: Final = (
    CardReason.NumaNotFit,
    CardReason.AllocatedCardsInsufficientRequest,
    CardReason.CardTopologyMismatch,
)
"""The verdicts on cards that fit by themselves, and are rejected for what the other cards are."""


class Trial(msgspec.Struct, frozen=True):
    """One container on the cards of one node.

    Attributes:
        container: its name.
        verdicts: of each card, by position.
        scores: how full each card would be with the container, 0 to 30; by position.
        usable: whether each card would fit if no pod held any of it; by position.
        chosen: positions, in the order in which the container sees the cards.
    """

    container: str
    verdicts: tuple[CardReason, ...]
    scores: tuple[float, ...]
    usable: tuple[bool, ...]
    chosen: tuple[int, ...] = ()

    def is_free(self, position: int) -> bool:
        """Whether a card fits by itself."""
        return self.verdicts[position] in (CardReason.FITS, *_OF_OTHERS)


def fitting(ledger: Ledger, query: PlacementQuery, node: str) -> tuple[Trial, ...]:
    """Return the trial of each GPU container on a node that takes the pod."""
    trials: list[Trial] = []
    inventory = ledger.inventory(node)

    def record(container: ContainerRequest, cards: NodeCards, headroom: Headroom, choice: Choice) -> None:
        if inventory is not None:
            trials.append(
                _trial(ledger, query, cards, container, inventory=inventory, headroom=headroom, chosen=choice.positions)
            )

    place_on(ledger, query, node, observer=record)
    return tuple(trials)


def rejected(ledger: Ledger, query: PlacementQuery, node: str, rejection: Rejection) -> tuple[Trial, ...]:
    """Return the trial of the container that a node rejected; empty if the rejection is not about its cards."""
    row, inventory, container = ledger.row(node), ledger.inventory(node), query.request.container(rejection.container)
    if row is None or inventory is None or container is None or len(rejection.verdicts) != len(inventory.cards):
        return ()  # the cards may have changed after the evaluation
    cards = NodeCards(ledger, row, query.constraints, query.request.isolation)
    requests = card_requests.of_node(query.bound, inventory, cards)
    columns = ConstraintMasks(ledger, query.constraints).cards(row)
    judged = np.full(columns.present.shape, ABSENT, np.int8)
    judged[: len(rejection.verdicts)] = rejection.verdicts
    usable = np.zeros(judged.shape, np.bool_)
    for request, positions in card_requests.by_request(requests, container, len(judged)):
        usable[positions] = resolvable(columns, request, judged)[positions]
    scores = _scores(cards, container, query, requests)
    return (Trial(container.name, rejection.verdicts, scores, _of_present(usable, columns.present)),)


def running(ledger: Ledger, query: PlacementQuery, allocation: Allocation) -> tuple[Trial, ...]:
    """Return what each GPU container of a running pod has, with the verdicts on it as a new container.

    A container is left out if the node does not have its cards any more.
    """
    row, inventory = ledger.row(allocation.node), ledger.inventory(allocation.node)
    if row is None or inventory is None:
        return ()
    position_of = {card.uuid: position for position, card in enumerate(inventory.cards)}
    cards, trials = NodeCards(ledger, row, query.constraints, query.request.isolation), list[Trial]()
    for container in query.request.gpu_containers:
        chosen = tuple(position_of.get(share.uuid, -1) for share in allocation.containers.get(container.name, ()))
        if chosen and -1 not in chosen:
            trials.append(
                _trial(ledger, query, cards, container, inventory=inventory, headroom=query.headroom, chosen=chosen)
            )
    return tuple(trials)


def _trial(
    ledger: Ledger,
    query: PlacementQuery,
    cards: NodeCards,
    container: ContainerRequest,
    *,
    inventory: NodeInventory,
    headroom: Headroom,
    chosen: tuple[int, ...],
) -> Trial:
    requests = card_requests.of_node(query.bound, inventory, cards)
    columns = cards_of(ledger, cards.row, cards, query.constraints)
    judged, usable = judge(columns, query, container, requests=requests, headroom=headroom)
    reasons = tuple(CardReason(code) for code in judged.tolist() if code != ABSENT)
    scores = _scores(cards, container, query, requests)
    return Trial(container.name, reasons, scores, _of_present(usable, columns.present), chosen)


def _of_present(usable: Flags, present: Flags) -> tuple[bool, ...]:
    flags: list[bool] = usable[present].tolist()
    return tuple(flags)


def _scores(
    cards: NodeCards, container: ContainerRequest, query: PlacementQuery, requests: CardRequests | None
) -> tuple[float, ...]:
    scores: dict[int, float] = {}
    weights = query.constraints.weights
    for request, positions in card_requests.by_request(requests, container, len(cards.facts.usable)):
        scores |= card_scores(positions, total=cards.facts.total, used=cards.used, request=request, weights=weights)
    return tuple(scores[position] for position in sorted(scores))
