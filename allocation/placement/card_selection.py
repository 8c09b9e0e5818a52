"""Selects a container's cards among those that fit: ordered by policy, from one NUMA node, or by their links."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import MEMORY, SLOTS
from allocation.placement.node_cards import NodeCards
from allocation.placement.score import card_scores
from allocation.request import ContainerRequest

_EXHAUSTIVE = 16
"""Up to this many fitting cards, every subset is compared; C(16, 8) is 12,870."""


class Choice(msgspec.Struct, frozen=True):
    """The selected cards.

    Attributes:
        positions: of the selected cards; empty if there are too few.
        scattered: of the cards that fit, if no NUMA node has enough of them and the pod requires one that has.
    """

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
    """Select among the `fitting` cards of one node, which are at least as many as requested; sorted by position.

    Shared cards come before MIG instances, which are charged whole; smaller instances come before larger ones.
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
    """Order cards by the policies in turn, then by free memory and position."""
    scores = card_scores(fitting, total=cards.total, used=cards.used, request=request, weights=constraints.weights)
    total, used = cards.total[MEMORY], cards.used[MEMORY]
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
                keys.append([cards.numa[card] for card in fitting])
            case "mutex":
                keys.append([cards.used[SLOTS][card] > 0 for card in fitting])
            case "topology-aware":
                pass  # compares links between cards, which is not a property of one card
    return [key[-1] for key in sorted(zip(*keys, fullness, less_free, fitting, strict=True))]


def _size(card: Card) -> tuple[int, ...]:
    """Return the sort key that prefers shared cards, then small instances."""
    if card.instance is None:
        return ()
    return (card.memory_mib, card.instance.slices.size if card.instance.slices is not None else 0)


def _one_numa_node(cards: NodeCards, ordered: Sequence[int], count: int) -> list[int]:
    """Return the cards of the first NUMA node, in order of preference, that has `count`; empty if none has."""
    groups: dict[int, list[int]] = {}
    for card in ordered:
        groups.setdefault(cards.numa[card], []).append(card)
    return next((group for group in groups.values() if len(group) >= count), [])


def _best_linked(ordered: Sequence[int], inventory: NodeInventory, count: int) -> tuple[int, ...]:
    """Return the subset whose cards are best linked with each other; of equal subsets the preferred one.

    A single card is the one with the worst links to the others, so that well-linked groups stay whole (hami.md 2.2).
    """
    if count == 1:
        return (min(ordered, key=lambda card: sum(inventory.pair_score(card, other) for other in ordered)),)
    if len(ordered) <= _EXHAUSTIVE:
        return _best_subset(ordered, inventory, count)
    chosen = list(max(combinations(ordered, 2), key=lambda subset: _links(subset, inventory)))
    while len(chosen) < count:
        rest = [card for card in ordered if card not in chosen]
        chosen.append(max(rest, key=lambda card: sum(inventory.pair_score(card, other) for other in chosen)))
    return tuple(chosen)


def _best_subset(ordered: Sequence[int], inventory: NodeInventory, count: int) -> tuple[int, ...]:
    """Return the first subset, in the order of preference, with the highest sum of scores over all its pairs."""
    scores = np.array([[inventory.pair_score(one, other) for other in ordered] for one in ordered], np.float64)
    members = _memberships(len(ordered), count)
    sums = np.einsum("sc,sc->s", members @ scores, members)  # each pair twice, in all sums alike
    best = members[int(sums.argmax())]
    return tuple(card for card, is_member in zip(ordered, best.tolist(), strict=True) if is_member)


@lru_cache(maxsize=8)
def _memberships(cards: int, count: int) -> NDArray[np.float64]:
    """Return which cards each subset has, as 0 and 1; shape (subset, card), in lexicographic order."""
    subsets = np.fromiter(chain.from_iterable(combinations(range(cards), count)), np.int64).reshape(-1, count)
    members = np.zeros((len(subsets), cards))
    np.put_along_axis(members, subsets, 1.0, axis=1)
    return members


def _links(subset: Iterable[int], inventory: NodeInventory) -> int:
    return sum(inventory.pair_score(one, other) for one, other in combinations(subset, 2))
