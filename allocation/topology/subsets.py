"""Properties of all sets of up to 16 cards at once, as arrays by mask: bit b of a mask says that card b is in the set.

Each is computed by doubling: the sets with card b are those of the cards before it, plus this card.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocation.topology.layout import Layout
from allocation.topology.ranking import Numbers, Property, Sets

MOST_CARDS: Final = 16
"""Layouts with more cards have no tables: 2¹⁶ masks are 128 KiB in each."""

_COMMON: Final[tuple[Property, ...]] = ("bandwidth", "tier", "islands", "span")
_LOW_CARDS: Final = 8
"""Masks are split into rows and columns of at most 2⁸, so that few operations on long arrays do for all."""


class Subsets:
    """All sets of cards of one layout; each property is computed when a demand first needs it, in some 0.1 ms."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def prepare(self) -> None:
        """Compute the properties that most demands need."""
        for name in _COMMON:
            getattr(self, name)

    @cached_property
    def bandwidth(self) -> Numbers:
        """GB/s of the slowest pair; of a single card, its own."""
        matrix = _narrow(self.layout.bandwidth)
        values = _over_pairs(matrix, np.minimum, start=int(np.iinfo(matrix.dtype).max))
        values[1 << np.arange(len(matrix))] = matrix.diagonal()
        return values

    @cached_property
    def tier(self) -> Numbers:
        """The tier of the worst pair, from links and NUMA nodes."""
        return _over_pairs(_narrow(self.layout.tiers), np.maximum)

    @cached_property
    def numa_tier(self) -> Numbers:
        """The same from NUMA nodes only."""
        return _over_pairs(_narrow(self.layout.numa_tiers), np.maximum)

    @cached_property
    def islands(self) -> Numbers:
        """The number of islands that a set touches."""
        return _touched(self.layout.islands)

    @cached_property
    def island_size(self) -> Numbers:
        """The number of cards that the largest island has of those that a set touches."""
        islands = self.layout.islands
        sizes = np.array([[islands.count(island) for island in islands]], np.uint8)
        largest: Numbers = _over_members(sizes, np.maximum, start=0)[0]
        return largest

    @cached_property
    def numa_nodes(self) -> Numbers:
        """The number of NUMA nodes that a set touches."""
        return _touched(self.layout.numa)

    @cached_property
    def span(self) -> Numbers:
        """The difference between the highest and the lowest index."""
        return _spans(self.layout.ids)

    @cached_property
    def distance(self) -> Numbers:
        """The sum of the differences of indexes over all pairs."""
        return _distances(self.layout.ids)

    @cached_property
    def score(self) -> Numbers:
        """The sum of scores over all pairs."""
        return _sum_over_pairs(_narrow(self.layout.scores))

    @property
    def nbytes(self) -> int:
        """The size in bytes of the properties that have been computed."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))


class MaskedSets(Sets):
    """Sets of cards of a layout, given by their masks."""

    def __init__(self, subsets: Subsets, masks: NDArray[np.int64], count: int) -> None:
        super().__init__(subsets.layout, count)
        self._subsets = subsets
        self._masks = masks

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self._masks)

    def values(self, name: Property) -> Numbers:
        """Return a property of each set."""
        values: Numbers = getattr(self._subsets, name)
        return values[self._masks]

    def number_of(self, bits: Collection[int]) -> Numbers:
        """Return how many of `bits` each set has."""
        number: Numbers = np.bitwise_count(self._masks & mask_of(bits))
        return number


@lru_cache(maxsize=MOST_CARDS * MOST_CARDS)
def masks(cards: int, count: int) -> NDArray[np.int64]:
    """Return the masks of all sets of `count` out of `cards` cards, ascending."""
    return np.flatnonzero(np.bitwise_count(np.arange(1 << cards)) == count)


def mask_of(bits: Iterable[int]) -> int:
    """Return the mask that has these bits."""
    return sum(1 << bit for bit in bits)


def bits_of(mask: int) -> tuple[int, ...]:
    """Return the bits of a mask, ascending."""
    return tuple([bit for bit in range(mask.bit_length()) if mask >> bit & 1])


def _narrow(matrix: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Return a matrix as an array that has just enough bytes for its values."""
    highest = max((max(row) for row in matrix), default=0)
    return np.array(matrix, np.min_scalar_type(highest)).reshape(len(matrix), len(matrix))


@lru_cache(maxsize=4)
def _spans(ids: tuple[int, ...]) -> Numbers:
    """Return the span of each set. Most layouts of one size have the same indexes."""
    return _over_pairs(_differences(ids), np.maximum)


@lru_cache(maxsize=4)
def _distances(ids: tuple[int, ...]) -> Numbers:
    """Return the sum of the differences of indexes of each set."""
    return _sum_over_pairs(_differences(ids))


def _differences(ids: tuple[int, ...]) -> NDArray[Any]:
    """Return the difference of the indexes of each pair."""
    return _narrow([[abs(one - other) for other in ids] for one in ids])


def _sum_over_pairs(matrix: NDArray[Any]) -> Numbers:
    """Return the sum of the values of all pairs of each set."""
    return _over_pairs(matrix.astype(np.min_scalar_type(int(matrix.sum(dtype=np.int64)))), np.add)


def _over_pairs(matrix: NDArray[Any], combine: np.ufunc, *, start: int = 0) -> Numbers:
    """Combine the values of all pairs of each set; `start` is the result for sets without a pair.

    Masks are split into those of the low cards, by column, and those of the high cards, by row.
    """
    cards, low = len(matrix), min(len(matrix), _LOW_CARDS)
    with_low = _over_members(matrix[:, :low], combine, start=start)
    with_high = _over_members(matrix[:, low:], combine, start=start)
    values = np.full((1 << (cards - low), 1 << low), start, matrix.dtype)
    for card in range(low):
        half = 1 << card
        combine(values[0, :half], with_low[card, :half], out=values[0, half : 2 * half])
    for card in range(low, cards):
        half = 1 << (card - low)
        added = values[half : 2 * half]
        combine(values[:half], with_low[card], out=added)
        combine(added, with_high[card, :half, np.newaxis], out=added)
    return values.reshape(-1)


def _over_members(matrix: NDArray[Any], combine: np.ufunc, *, start: int) -> NDArray[Any]:
    """Combine, for each row, the values of each set of columns; shape (row, 2 ** columns)."""
    rows, columns = matrix.shape
    values = np.full((rows, 1 << columns), start, matrix.dtype)
    for column in range(columns):
        half = 1 << column
        combine(values[:, :half], matrix[:, column, np.newaxis], out=values[:, half : 2 * half])
    return values


def _touched(groups: Sequence[int]) -> Numbers:
    """Return how many different groups the cards of each set belong to."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    masks = np.array([[1 << numbers[group] for group in groups]], np.uint16)
    touched: Numbers = np.bitwise_count(_over_members(masks, np.bitwise_or, start=0)[0])
    return touched
