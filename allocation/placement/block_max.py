"""Maximum of an array under point updates, kept as per-block maxima: O(sqrt n) per query."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

INFEASIBLE: Final = -np.inf
"""The value of an element that must not be chosen."""


class BlockMax:
    """An array of values and the maximum of each of its blocks; of equal values the first is the maximum.

    Attributes:
        count: how many values are feasible.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._block = block = 1 << (len(values).bit_length() // 2)
        self._values = np.full(max(-(-len(values) // block), 1) * block, INFEASIBLE)
        self._values[: len(values)] = values
        self._maxima: NDArray[np.float64] = self._values.reshape(-1, block).max(axis=1)
        self._length = len(values)
        self.count = int(np.count_nonzero(values != INFEASIBLE))

    @property
    def values(self) -> NDArray[np.float64]:
        """All values, to be read at once."""
        return self._values[: self._length]

    def value(self, index: int) -> float:
        """Return the value at `index`."""
        value: float = self._values.item(index)
        return value

    def set(self, index: int, value: float) -> None:
        """Replace the value at `index`."""
        old = self._values.item(index)
        if value == old:
            return
        self.count += (old == INFEASIBLE) - (value == INFEASIBLE)
        self._values[index] = value
        at = index // self._block
        maximum = self._maxima.item(at)
        if value > maximum:
            self._maxima[at] = value
        elif old == maximum:
            block = self._values[at * self._block : (at + 1) * self._block]
            self._maxima[at] = block.item(block.argmax())

    def best(self) -> tuple[int, float]:
        """Return the index and the value of the maximum; the value is `INFEASIBLE` if none is feasible."""
        at = int(self._maxima.argmax())
        begin = at * self._block
        index = begin + int(self._values[begin : begin + self._block].argmax())
        return index, self._values.item(index)
