"""Sets of cards on a node with too many cards for tables: the best of some candidates, in bounded time.

Candidates are runs of free cards, with the cards ordered by groups that belong together (`CardArrays.groups`), and sets
that grow card by card. They are compared by the definition, `allocation.topology.order`, so that a set is never
accepted that the demand rejects; but a better set than the best candidate may exist.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.topology import ranking
from allocation.topology.demand import TopologyDemand
from allocation.topology.growth import grown
from allocation.topology.layout import Layout
from allocation.topology.listed_sets import CardArrays, Cards, ListedSets, card_arrays, is_first
from allocation.topology.subsets import bits_of

_MOST_PAIRS: Final = 1 << 18
"""How many pairs of cards all candidates have together: what a search takes is proportional to it."""
_SEEDS: Final = 8
_TIES: Final = 4
"""How many equal candidates are remembered."""


def worth(layout: Layout, free: int, count: int, demand: TopologyDemand) -> float:
    """Return how good the best candidate is (see `TopologyTables.worth`); `choose` chooses none that is worse."""
    return search(layout, free, count, demand)[0] if demand.is_required or demand.ranks_nodes else 0.0


def choose(
    layout: Layout, free: int, count: int, demand: TopologyDemand, *, preference: Sequence[int]
) -> tuple[int, ...]:
    """Return the bits of a good set of `count` free cards, ascending; empty if no acceptable one was found."""
    cards, preferred = card_arrays(layout), np.array(preference, np.int64)
    if demand.policy == "linked" and count == 1:
        scores = cards.score[preferred[:, np.newaxis], preferred]
        return (preferred.item(int(scores.sum(axis=1).argmin())),)
    best = search(layout, free, count, demand)[1].astype(np.int64)
    if not np.array_equal(preferred, np.sort(preferred)):
        own = _candidates(cards, preferred, count, demand)
        best = _best_of(cards, np.concatenate((best, own)), demand, preferred)
    ranks = np.zeros(len(cards.ids), np.int64)
    ranks[preferred] = np.arange(len(preferred))
    return tuple(min(best.tolist(), key=lambda members: sorted(map(ranks.item, members)), default=()))


@lru_cache(maxsize=4096)
def search(layout: Layout, free: int, count: int, demand: TopologyDemand) -> tuple[float, NDArray[np.uint16]]:
    """Return the worth of the best candidates, and some of them. Idle nodes of one machine type share this."""
    cards, bits = card_arrays(layout), np.array(bits_of(free), np.int64)
    best = _best_of(cards, _candidates(cards, bits, count, demand), demand, bits)[:_TIES]
    worths = ranking.worths(ListedSets(cards, best), demand)
    return worths.item(0) if len(worths) else -np.inf, best.astype(np.uint16)


def _best_of(cards: CardArrays, candidates: Cards, demand: TopologyDemand, free: Cards) -> Cards:
    """Return the best accepted candidates, of which all are equal in the order of the demand."""
    keys, accepted = ranking.keys(ListedSets(cards, candidates), demand)
    if accepted is not None:
        keys, candidates = keys[accepted], candidates[accepted]
    best = candidates[keys == keys.min()] if len(keys) else candidates
    if len(best) > 1 and demand.ranks_nodes:
        islands = np.sort(cards.islands[best], axis=1)
        sizes = np.bincount(cards.islands[free], minlength=len(cards.ids))
        left_over = (sizes[islands] * is_first(islands)).sum(axis=1)
        best = best[left_over == left_over.min()]
    return best


def _candidates(cards: CardArrays, free: Cards, count: int, demand: TopologyDemand) -> Cards:
    """Return sets of `count` of the `free` cards, which have the preferred ones first; shape (set, card)."""
    first = _first(cards, free, demand)
    most = max(_MOST_PAIRS // count**2 // (len(cards.groups) * len(first) + 1), 1)
    sets = [grown(cards, free, count, demand, seeds=min(most, _SEEDS))]
    for groups in cards.groups:
        for keys in first:
            order = np.lexsort((*keys, groups[free]))
            runs = np.lib.stride_tricks.sliding_window_view(free[order], count)
            own = groups[free[order]]
            crosses = own[count - 1 :] != own[: len(runs)]
            span = np.abs(runs[:, -1] - runs[:, 0]) if demand.policy != "spread" else np.zeros(len(runs))
            sets.append(runs[np.lexsort((span, crosses))[:most]])
    return np.sort(np.concatenate(sets), axis=1)


def _first(cards: CardArrays, free: Cards, demand: TopologyDemand) -> list[tuple[NDArray[np.int64], ...]]:
    """Return orders of the free cards within a group, each as sort keys of which the last decides.

    The preferred cards come first, of preferIds those with preferred indexes; for spread islands and NUMA nodes take
    turns, and cards from both ends of the indexes come first.
    """
    rank = np.arange(len(free))
    if demand.policy == "preferIds":
        return [(rank, 1 - np.isin(cards.ids[free], demand.prefer_ids))]
    if demand.policy == "spread":
        place = np.argsort(np.argsort(free))
        ends = np.minimum(place, len(free) - 1 - place)
        return [(rank,), (ends,), (ends, _turn(cards.numa[free], ends), _turn(cards.islands[free], ends))]
    return [(rank,)]


def _turn(groups: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many cards of its group come before each card."""
    order = np.lexsort((rank, groups))
    ordered = groups[order]
    turns = np.empty_like(order)
    turns[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return turns
