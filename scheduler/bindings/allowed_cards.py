"""The cards that are bound to a pod's application, without those of which it would get more than one pod may have.

What a binding and its card's share mode give takes the place of what the pod requests: quotas are compared with that.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from allocation.bindings.bound_cards import BoundCard, BoundCards
from allocation.ledger.ledger import Ledger
from allocation.placement import bound_placement
from allocation.request import PodRequest
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError


class MayHave(Protocol):
    """Checks whether one pod may have what is requested of a card; raises `WaitingPodError` if not."""

    def __call__(self, request: PodRequest, *, card_mib: Callable[[], int], is_instance: bool) -> None:
        """Check `request`; a percentage is that of the memory that `card_mib` returns."""


def within_quotas(requirements: GpuRequirements, bound: BoundCards, ledger: Ledger, may_have: MayHave) -> BoundCards:
    """Return those of the `bound` cards that the pod may have; cards that no node reports are kept.

    Raises:
        WaitingPodError: it may have none of them.
    """
    forbidden: set[str] = set()
    refusals: list[WaitingPodError] = []
    for node, cards in bound_placement.by_node(ledger, bound).items():
        count = len(cards) if bound.policy == "all" else 0
        for card in cards:
            try:
                may_have(
                    _of_card(requirements.request, card, count),
                    card_mib=partial(_memory, ledger, node, card.uuid),
                    is_instance=bool(ledger.instances(card.uuid)),
                )
            except WaitingPodError as refusal:
                refusals.append(refusal)
                forbidden |= {each.uuid for each in cards} if count else {card.uuid}
    left = tuple(card for card in bound.cards if card.uuid not in forbidden)
    if refusals and not left:
        raise refusals[0]
    return msgspec.structs.replace(bound, cards=left)


def _of_card(request: PodRequest, card: BoundCard, count: int) -> PodRequest:
    """Return what a pod would have of a card, and of `count` cards together, or of as many as it requests for 0."""
    containers = [card.request(each) if each.count else each for each in request.containers]
    return PodRequest(
        tuple(msgspec.structs.replace(each, count=count) if count and each.count else each for each in containers)
    )


def _memory(ledger: Ledger, node: str, uuid: str) -> int:
    inventory = ledger.inventory(node)
    cards = inventory.cards if inventory is not None else ()
    return next((card.memory_mib for card in cards if card.uuid == uuid), 0)
