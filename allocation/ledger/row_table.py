"""A value for every row of the ledger: computed once, in steps, and then only for the rows that change."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from allocation.ledger.ledger import Ledger
from allocation.steps import Steps, finish

_STEP = 32
"""Rows that are evaluated between two interruptions."""


class RowTable:
    """What `evaluate` returns for each row in use, as long as every change of it is in `Ledger.changes`."""

    def __init__(self, ledger: Ledger, evaluate: Callable[[int], object], dtype: DTypeLike) -> None:
        self._ledger = ledger
        self._evaluate = evaluate
        self._dtype = dtype
        self._mark = -1
        self._values: NDArray[Any] = np.zeros(0, dtype)

    def prepare(self) -> Steps[None]:
        """Evaluate every row in steps if necessary, or those that have changed, so that few are left for `rows`."""
        changes = self._ledger.changes
        if changes.reaches(self._mark):
            yield from self._follow()
            return
        mark, values = changes.mark, np.zeros(self._ledger.fullness.shape, self._dtype)
        for position, row in enumerate(self._ledger.order().tolist()):
            if position % _STEP == _STEP - 1:
                yield
                if not changes.reaches(mark):
                    return  # the rows belong to other nodes now
            values[row] = self._evaluate(row)
        self._mark, self._values = mark, values

    def _follow(self) -> Steps[None]:
        """Evaluate the rows that have changed, if they are many: those of a large job that ends, for example."""
        changes = self._ledger.changes
        mark, changed = changes.mark, {max(entry, ~entry) for entry in changes.since(self._mark) or ()}
        if len(changed) <= _STEP:
            return
        for position, row in enumerate(changed):
            if position % _STEP == _STEP - 1:
                yield
                if not changes.reaches(mark):
                    return  # the rows belong to other nodes now
            self._values[row] = self._evaluate(row)
        self._mark = mark

    def rows(self) -> NDArray[Any]:
        """Return the value of each row of the ledger; that of a row that is not in use means nothing."""
        finish(self.prepare())
        for entry in self._ledger.changes.since(self._mark) or ():
            row = entry if entry >= 0 else ~entry
            self._values[row] = self._evaluate(row)
        self._mark = self._ledger.changes.mark
        return self._values
