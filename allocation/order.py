"""Which of the cards that fit a container gets: ordered by policy, grouped by NUMA node, or chosen for their links."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from allocation.card_table import MEMORY, SLOTS
from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.node_cards import NodeCards
from allocation.request import ContainerRequest
from allocation.score import card_scores

_EXACT = 16
"""Up to so many fitting cards every subset is compared; C(16, 8) is 12,870."""


class Choice(msgspec.Struct, frozen=True):
    """The positions of the chosen cards, or, where NUMA binding left too few, of those that fit but not together."""

    positions: tuple[int, ...] = ()
    scattered: tuple[int, ...] = ()


def choose(
    cards: NodeCards,
    fitting: Sequence[int],
    inventory: NodeInventory,
    *,
    request: ContainerRequest,
    constraints: Constraints,
) -> Choice:
    """Choose among the `fitting` cards of one node, of which there are enough; the container sees them by index.

    Shared cards come before MIG instances, which are charged whole, and of these the smallest first.
    """
    ordered = _by_policy(cards, fitting, request=request, constraints=constraints)
    if cards.instances is not None:
        ordered.sort(key=lambda card: _size(inventory.cards[card]))
    if constraints.numa_bind:
        ordered = _one_numa_node(cards, ordered, request.count)
        if not ordered:
            return Choice(scattered=tuple(fitting))
    if "topology-aware" in constraints.card_policies and len(ordered) > request.count:
        ordered = list(_best_linked(ordered, inventory, request.count))
    return Choice(tuple(sorted(ordered[: request.count])))


def _by_policy(
    cards: NodeCards, fitting: Sequence[int], *, request: ContainerRequest, constraints: Constraints
) -> list[int]:
    """Order cards by the policies, the first that tells two apart decides; then by free memory and position."""
    scores = card_scores(cards.total, cards.used, request, constraints.weights, fitting)
    total, used = cards.total[MEMORY], cards.used[MEMORY]
    full = [scores[card] for card in fitting]
    taken = [used[card] - total[card] for card in fitting]
    keys: list[Iterable[float]] = []
    for policy in constraints.card_policies:
        match policy:
            case "binpack":
                keys += ([-score for score in full], [-free for free in taken])
            case "spread":
                keys += (full, taken)
            case "numa":
                keys.append([cards.numa[card] for card in fitting])
            case "mutex":
                keys.append([cards.used[SLOTS][card] > 0 for card in fitting])
            case "topology-aware":
                pass  # the links are compared between cards, not card by card
    return [key[-1] for key in sorted(zip(*keys, full, taken, fitting, strict=True))]


def _size(card: Card) -> tuple[int, ...]:
    """Answer by what an instance is preferred to another; the same for all shared cards."""
    if card.instance is None:
        return ()
    return (card.memory_mib, card.instance.slices.size if card.instance.slices is not None else 0)


def _one_numa_node(cards: NodeCards, ordered: Sequence[int], count: int) -> list[int]:
    """Keep the cards of the first NUMA node, in the order of preference, that has enough; none where none has."""
    groups: dict[int, list[int]] = {}
    for card in ordered:
        groups.setdefault(cards.numa[card], []).append(card)
    return next((group for group in groups.values() if len(group) >= count), [])


def _best_linked(ordered: Sequence[int], inventory: NodeInventory, count: int) -> tuple[int, ...]:
    """Choose the subset with the best links among its cards; the first of equals in the order of preference.

    One card alone is the one that is worst linked to the others, so that good groups stay whole (hami.md 2.2).
    """
    if count == 1:
        return (min(ordered, key=lambda card: sum(inventory.pair_score(card, other) for other in ordered)),)
    if len(ordered) <= _EXACT:
        return max(combinations(ordered, count), key=lambda subset: _links(subset, inventory))
    chosen = list(max(combinations(ordered, 2), key=lambda subset: _links(subset, inventory)))
    while len(chosen) < count:
        rest = [card for card in ordered if card not in chosen]
        chosen.append(max(rest, key=lambda card: sum(inventory.pair_score(card, other) for other in chosen)))
    return tuple(chosen)


def _links(subset: Iterable[int], inventory: NodeInventory) -> int:
    return sum(inventory.pair_score(one, other) for one, other in combinations(subset, 2))
