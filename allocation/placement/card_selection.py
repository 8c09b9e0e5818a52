"""Selects a container's cards among those that fit: ordered by policy, from one NUMA node, or by their links."""

from collections.abc import Iterable, Sequence

import msgspec

from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import MEMORY, SLOTS
from allocation.placement.card_sets import CardSets
from allocation.placement.node_cards import NodeCards
from allocation.placement.score import card_scores
from allocation.request import ContainerRequest


class Choice(msgspec.Struct, frozen=True):
    """The selected cards.

    Attributes:
        positions: of the selected cards; empty if there are too few.
        scattered: of the cards that fit, if no NUMA node has enough of them and the pod requires one that has.
        unconnected: of the cards that fit, if no set of them is connected as the pod requires.
    """

    positions: tuple[int, ...] = ()
    scattered: tuple[int, ...] = ()
    unconnected: tuple[int, ...] = ()


def choose(
    cards: NodeCards,
    fitting: Sequence[int],
    inventory: NodeInventory,
    *,
    request: ContainerRequest,
    constraints: Constraints,
    sets: CardSets | None,
) -> Choice:
    """Select among the `fitting` cards of one node, which are at least as many as requested; sorted by position.

    Shared cards come before MIG instances, which are charged whole; smaller instances come before larger ones. `sets`
    are those that the pod's demand on topology accepts; None if it has none.
    """
    ordered = _by_policy(cards, fitting, request=request, constraints=constraints)
    if cards.facts.instances is not None:
        ordered.sort(key=lambda card: _size(inventory.cards[card]))
    groups = [ordered]
    if constraints.numa_bind:
        groups = _numa_groups(cards, ordered, request.count)
        if not groups:
            return Choice(scattered=tuple(fitting))
    if sets is None:
        return Choice(tuple(sorted(groups[0][: request.count])))
    for group in groups:
        chosen = sets.choose(cards.row, group, request.count)
        if chosen:
            return Choice(tuple(sorted(chosen)))
    return Choice(unconnected=tuple(fitting))


def _by_policy(
    cards: NodeCards, fitting: Sequence[int], *, request: ContainerRequest, constraints: Constraints
) -> list[int]:
    """Order cards by the policies in turn, then by free memory and position."""
    if request.whole and cards.facts.is_uniform and "numa" not in constraints.card_policies:
        return [*fitting]  # idle cards of equal capacity are equal
    scores = card_scores(
        fitting, total=cards.facts.total, used=cards.used, request=request, weights=constraints.weights
    )
    total, used = cards.facts.total[MEMORY], cards.used[MEMORY]
    fullness = [scores[card] for card in fitting]
    less_free = [used[card] - total[card] for card in fitting]
    keys: list[Iterable[float]] = []
    for policy in constraints.card_policies:
        match policy:
            case "binpack":
                keys += ([-score for score in fullness], [-negative for negative in less_free])
            case "spread":
                keys += (fullness, less_free)
            case "numa":
                keys.append([cards.facts.numa[card] for card in fitting])
            case "mutex":
                keys.append([cards.used[SLOTS][card] > 0 for card in fitting])
            case "topology-aware":
                pass  # compares links between cards, which is not a property of one card
    if "spread" not in constraints.card_policies:
        keys += (fullness, less_free)
    return [key[-1] for key in sorted(zip(*keys, fitting, strict=True))]


def _size(card: Card) -> tuple[int, ...]:
    """Return the sort key that prefers shared cards, then small instances."""
    if card.instance is None:
        return ()
    return (card.memory_mib, card.instance.slices.size if card.instance.slices is not None else 0)


def _numa_groups(cards: NodeCards, ordered: Sequence[int], count: int) -> list[list[int]]:
    """Return the cards of each NUMA node that has `count`, the NUMA node of the preferred card first."""
    groups: dict[int, list[int]] = {}
    for card in ordered:
        groups.setdefault(cards.facts.numa[card], []).append(card)
    return [group for group in groups.values() if len(group) >= count]
