"""Properties of some sets of the cards of one node, which may have any number of cards."""

from array import array
from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.topology.layout import LINKED, SAME_NUMA, Layout, Matrix
from allocation.topology.ranking import Numbers, Property, Sets

Cards = NDArray[np.int64]
"""Bits of cards; shape (card,), or (set, card) for sets, whose cards are ascending."""

_LEVELS: Final = 6
"""How many different bandwidths divide cards into groups."""


class CardArrays:
    """A layout as arrays by bit; each is made when first needed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.ids = np.array(layout.ids, np.int64)
        self.islands = np.array(layout.islands, np.int64)
        self.numa = np.unique(np.array(layout.numa, np.int64), return_inverse=True)[1]

    @cached_property
    def bandwidth(self) -> NDArray[np.int32]:
        """GB/s of each pair; of a card with itself, its own."""
        return _array(self.layout.bandwidth)

    @cached_property
    def tier(self) -> NDArray[np.int32]:
        """The tier of each pair."""
        return _array(self.layout.tiers)

    @cached_property
    def numa_tier(self) -> NDArray[np.int32]:
        """The same from NUMA nodes only."""
        return _array(self.layout.numa_tiers)

    @cached_property
    def score(self) -> NDArray[np.int32]:
        """The score of each pair."""
        return _array(self.layout.scores)

    @cached_property
    def groups(self) -> list[Cards]:
        """Ways to divide the cards so that those of a group belong together, each as the number of every card's group.

        They are all cards, islands, NUMA nodes, both of them, and cards with at least some bandwidth between them.
        """
        amounts = np.flatnonzero(np.bincount(self.bandwidth.ravel()))[1:]
        levels = amounts[np.linspace(0, len(amounts) - 1, min(len(amounts), _LEVELS)).astype(np.int64)]
        itself = np.eye(len(self.ids), dtype=np.bool_)
        near = [self.bandwidth >= level for level in levels] + [self.numa_tier <= SAME_NUMA, self.tier == LINKED]
        found = [(pairs | itself).argmax(axis=1) for pairs in near]  # the first card that each is near to
        found += [np.zeros_like(self.ids), self.islands, self.islands * (self.numa.max() + 1) + self.numa]
        numbered = {_numbered(groups).tobytes(): _numbered(groups) for groups in found}
        return list(numbered.values())


@lru_cache(maxsize=8)
def card_arrays(layout: Layout) -> CardArrays:
    """Return the arrays of a layout; 4 MiB each with 1,024 cards."""
    return CardArrays(layout)


class ListedSets(Sets):
    """Sets given by their cards; shape (set, card), ascending in each set."""

    def __init__(self, cards: CardArrays, members: Cards) -> None:
        super().__init__(cards.layout, members.shape[1])
        self._cards = cards
        self._members = members

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self._members)

    def values(self, name: Property) -> Numbers:
        """Return a property of each set."""
        cards, members = self._cards, self._members
        values: Numbers
        match name:
            case "bandwidth":
                values = self._slowest()
            case "tier":
                values = self._over_pairs(cards.tier).max(axis=1)
            case "numa_tier":
                values = self._over_pairs(cards.numa_tier).max(axis=1)
            case "score":
                values = self._over_pairs(cards.score).sum(axis=1, dtype=np.int64) // 2
            case "islands":
                values = is_first(np.sort(cards.islands[members], axis=1)).sum(axis=1)
            case "numa_nodes":
                values = is_first(np.sort(cards.numa[members], axis=1)).sum(axis=1)
            case "island_size":
                values = np.bincount(cards.islands)[cards.islands[members]].max(axis=1)
            case "span":
                values = cards.ids[members[:, -1]] - cards.ids[members[:, 0]]
            case "distance":  # the i-th lowest of k indexes is added i times and subtracted k - 1 - i times
                values = cards.ids[members] @ np.arange(1 - self.count, self.count, 2)
        return values

    def number_of(self, bits: Collection[int]) -> Numbers:
        """Return how many of `bits` each set has."""
        number: Numbers = np.isin(self._members, list(bits)).sum(axis=1)
        return number

    def _slowest(self) -> Numbers:
        bandwidth = self._cards.bandwidth
        if self.count == 1:
            return bandwidth[self._members[:, 0], self._members[:, 0]]
        pairs = self._over_pairs(bandwidth)
        pairs[:, :: self.count + 1] = np.iinfo(np.int32).max
        slowest: Numbers = pairs.min(axis=1)
        return slowest

    def _over_pairs(self, matrix: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the values of all pairs of each set in both directions, and of its cards with themselves."""
        pairs = self._members[:, :, np.newaxis] * len(matrix) + self._members[:, np.newaxis]
        values: NDArray[np.int32] = matrix.reshape(-1)[pairs.reshape(len(pairs), self.count**2)]
        return values


def is_first(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each number is the first of its kind in its row; rows are ascending."""
    first = np.ones(rows.shape, np.bool_)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return first


def _array(matrix: Matrix) -> NDArray[np.int32]:
    """Return a matrix as an array, which takes a third of NumPy's time for tuples of tuples."""
    return np.frombuffer(b"".join(array("i", row).tobytes() for row in matrix), np.int32).reshape(len(matrix), -1)


def _numbered(groups: Cards) -> Cards:
    """Return equal numbers for equal groups, which depend on nothing but which cards are in one group."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse]
