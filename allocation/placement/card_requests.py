"""What a container requests of each card of a node, if cards are bound to its application; otherwise all are alike."""

from collections import defaultdict
from collections.abc import Sequence

from allocation.bindings.bound_cards import BoundCard, BoundCards
from allocation.inventory import NodeInventory
from allocation.placement.node_cards import NodeCards
from allocation.quota import Headroom
from allocation.request import ContainerRequest


class CardRequests:
    """The requests of a pod's containers on the cards of one node, by position."""

    def __init__(self, bound: BoundCards, inventory: NodeInventory, cards: NodeCards) -> None:
        """Read what is `bound` to the pod's application; `cards` are those of the node."""
        self._cards = cards
        self._takes_all = bound.policy == "all"
        by_uuid = {card.uuid: card for card in bound.cards}
        positions = ((place, by_uuid.get(card.parent or card.uuid)) for place, card in enumerate(inventory.cards))
        self._bound: dict[int, BoundCard] = {place: card for place, card in positions if card is not None}

    def on_card(self, container: ContainerRequest, position: int) -> ContainerRequest:
        """Return what a container requests of one card."""
        bound = self._bound.get(position)
        return container if bound is None else bound.request(container)

    def fitting(self, container: ContainerRequest, headroom: Headroom) -> list[int]:
        """Return the positions of the cards that fit a container, in order."""
        fitting: list[int] = []
        for request, positions in self.by_request(container):
            fitting += set(self._cards.fitting(request, headroom)).intersection(positions)
        return self._one_of_each(sorted(fitting))

    def _one_of_each(self, fitting: list[int]) -> list[int]:
        """Keep one instance of each card in MIG mode where a pod takes all cards: each binding counts once."""
        if not self._takes_all:
            return fitting
        first = {self._bound[position].uuid: position for position in reversed(fitting) if position in self._bound}
        return sorted(first.values())

    def by_request(self, container: ContainerRequest) -> list[tuple[ContainerRequest, list[int]]]:
        """Return each request of a container with the positions of its cards, which are all cards of the node."""
        groups: defaultdict[ContainerRequest, list[int]] = defaultdict(list)
        for position in range(len(self._cards.facts.usable)):
            groups[self.on_card(container, position)].append(position)
        return [*groups.items()]


def of_node(bound: BoundCards | None, inventory: NodeInventory, cards: NodeCards) -> CardRequests | None:
    """Return the requests on the cards of one node; None for a pod that requests the same of each."""
    return None if bound is None else CardRequests(bound, inventory, cards)


def by_request(
    requests: CardRequests | None, container: ContainerRequest, cards: int
) -> Sequence[tuple[ContainerRequest, Sequence[int]]]:
    """Return each request of a container with the positions of its cards, which are all of the node's `cards`."""
    return [(container, range(cards))] if requests is None else requests.by_request(container)
