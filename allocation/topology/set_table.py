"""All sets of one size in the order of a demand, and for every mask of free cards the best set within it."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocation.topology import ranking
from allocation.topology.demand import TopologyDemand
from allocation.topology.subsets import MOST_CARDS, MaskedSets, Subsets, bits_of, mask_of, masks

_LOW_CARDS: Final = 8
_CHOSEN: Final = 64
"""Choices that a table remembers: idle nodes of one machine type have the same free cards."""
_ALL: Final = (1 << MOST_CARDS) - 1


class SetTable:
    """The sets of `count` cards of a layout, for one demand on this layout (`TopologyDemand.on`).

    Sets that are equal in the order have the same place; 0 is the best, and the last one is that of having no set.
    """

    def __init__(self, subsets: Subsets, count: int, demand: TopologyDemand) -> None:
        cards = len(subsets.layout)
        every = masks(cards, count)
        keys, accepted = ranking.keys(MaskedSets(subsets, every, count), demand)
        ordered = (keys << MOST_CARDS) | every
        if accepted is not None:
            ordered = ordered[accepted]
        ordered.sort()
        keys = ordered >> MOST_CARDS
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        ordered &= (1 << MOST_CARDS) - 1
        sizes = np.diff(starts, append=len(ordered))
        self._count = count
        self._no_set = len(starts)
        self._sets = ordered.astype(np.uint16)
        self._starts = np.append(starts, [len(ordered)] * 2).astype(np.uint16)
        self._places = _best_within(cards, ordered, np.repeat(np.arange(len(starts)), sizes), no_set=len(starts))
        self._worths = np.append(ranking.worths(MaskedSets(subsets, ordered[starts], count), demand), -np.inf)
        self._chosen: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._islands = _shared_islands(subsets.layout.islands) if demand.ranks_nodes else []

    def worth(self, free: int) -> float:
        """Return how good the best set within a mask is; -inf without one, and 0 if sets do not rank nodes."""
        worth: float = self._worths.item(self._places.item(free))
        return worth

    def worths(self, free: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the worth of each mask."""
        worths: NDArray[np.float64] = self._worths[self._places[free]]
        return worths

    def choose(self, free: int, preference: Sequence[int]) -> tuple[int, ...]:
        """Return the bits of the best set within a mask, ascending; empty without one.

        Of sets at the same place, `allocation.topology.order` says which is chosen; `preference` has the free bits, the
        preferred ones first.
        """
        key = (free, *preference)
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) == _CHOSEN:
                self._chosen.clear()
            chosen = self._chosen[key] = self._choose(free, preference)
        return chosen

    def _choose(self, free: int, preference: Sequence[int]) -> tuple[int, ...]:
        place = self._places.item(free)
        if not self._islands and self._places.item(mask_of(preference[: self._count])) == place != self._no_set:
            return tuple(sorted(preference[: self._count]))
        sets = self._sets[self._starts.item(place) : self._starts.item(place + 1)]
        equal: list[int] = sets[sets & (_ALL ^ free) == 0].tolist()
        if len(equal) > 1 and self._islands:
            left = [self._left_over(members, free) for members in equal]
            least = min(left)
            equal = [members for members, its in zip(equal, left, strict=True) if its == least]
        for bit in preference:
            if len(equal) <= 1:
                break
            equal = [members for members in equal if members >> bit & 1] or equal
        return bits_of(equal[0]) if equal else ()

    def _left_over(self, members: int, free: int) -> int:
        """Return how many free cards a set leaves in the islands that it touches."""
        left = 0
        for island in self._islands:
            if members & island:
                left += (free & island & ~members).bit_count()
        return left

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in (self._sets, self._starts, self._places, self._worths))


def _shared_islands(islands: Sequence[int]) -> list[int]:
    """Return the masks of islands in which a set can leave more or fewer cards over than other sets do."""
    masks = [mask_of(bit for bit, its in enumerate(islands) if its == island) for island in sorted(set(islands))]
    return [mask for mask in masks if 1 < mask.bit_count() < len(islands)]


def _best_within(cards: int, sets: NDArray[np.int64], places: NDArray[np.int64], *, no_set: int) -> NDArray[Any]:
    """Return for each mask the lowest place of the sets that it contains, or `no_set`.

    Each pass lets the masks with one card have what the masks without it have. The passes of the low cards are done
    on the transposed table, so that all of them work on long rows.
    """
    low = min(cards, _LOW_CARDS)
    high = cards - low
    best = np.full(1 << cards, no_set, np.min_scalar_type(no_set))
    best[(sets & (1 << low) - 1) << high | sets >> low] = places
    by_low = best.reshape(1 << low, 1 << high)
    _pass_on(by_low)
    by_high = np.ascontiguousarray(by_low.T)
    _pass_on(by_high)
    return by_high.reshape(-1)


def _pass_on(rows: NDArray[Any]) -> None:
    """Let each row have the minimum of itself and the rows whose numbers have some of its bits."""
    half = rows.shape[1]
    while half < rows.size:
        halves = rows.reshape(-1, 2, half)
        np.minimum(halves[:, 1], halves[:, 0], out=halves[:, 1])
        half *= 2
