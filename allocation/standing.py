"""Who is best of many whose worth changes one by one: maxima by blocks, so that nobody is looked at who did not change.

Finding the best looks at as many values as there are blocks, and at those of one block; either is about the square
root of all.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

UNFIT: Final = -np.inf
"""The worth of who is no choice."""


class Standing:
    """Worths by rank; of equal ones the first is the best.

    Attributes:
        count: how many are a choice.
    """

    def __init__(self, worths: NDArray[np.float64]) -> None:
        self._block = block = 1 << (len(worths).bit_length() // 2)
        self._worths = np.full(max(-(-len(worths) // block), 1) * block, UNFIT)
        self._worths[: len(worths)] = worths
        self._tops: NDArray[np.float64] = self._worths.reshape(-1, block).max(axis=1)
        self.count = int(np.count_nonzero(worths != UNFIT))

    def worth(self, rank: int) -> float:
        """Answer the worth of one."""
        worth: float = self._worths.item(rank)
        return worth

    def set(self, rank: int, worth: float) -> None:
        """Take the present worth of one."""
        old = self._worths.item(rank)
        if worth == old:
            return
        self.count += (old == UNFIT) - (worth == UNFIT)
        self._worths[rank] = worth
        at = rank // self._block
        top = self._tops.item(at)
        if worth > top:
            self._tops[at] = worth
        elif old == top:
            block = self._worths[at * self._block : (at + 1) * self._block]
            self._tops[at] = block.item(block.argmax())

    def best(self) -> tuple[int, float]:
        """Answer the rank and the worth of the best; `UNFIT` where nobody is a choice."""
        at = int(self._tops.argmax())
        begin = at * self._block
        rank = begin + int(self._worths[begin : begin + self._block].argmax())
        return rank, self._worths.item(rank)
