"""Which isolation locks each card: that of the pods that hold parts of it, until none is left.

Only cards that pods share are locked. A MIG instance has one holder, whose isolation is the hardware's.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Locks = NDArray[np.int64]
"""Shape (row, card): `IDLE`, `MIXED`, or the code of the isolation of all holders of a card."""

IDLE: Final = 0
MIXED: Final = -1
"""The holders have different isolations, because they came before the lock or against it: no pod may join them."""


class IsolationLocks:
    """The locks of all cards of a ledger.

    Attributes:
        locks: of each card.
    """

    def __init__(self, *, rows: int, cards: int) -> None:
        self.locks: Locks = _none(rows, cards)
        self._codes: dict[str, int] = {}
        self._holders: dict[int, list[dict[int, int]]] = {}
        """By row and card: how many holders have the isolation of each code."""
        self._lists: dict[int, list[int]] = {}
        """The same as `locks`, of the rows that have or had holders."""

    def code(self, isolation: str) -> int:
        """Return the code of an isolation, which is a positive number."""
        code = self._codes.get(isolation)
        if code is None:  # a member of an enumeration equals its value, and has another hash
            code = self._codes.setdefault(str(isolation), len(self._codes) + 1)
            self._codes[isolation] = code
        return code

    def resize(self, rows: int, cards: int) -> None:
        """Make room for more rows and cards."""
        old, self.locks = self.locks, _none(rows, cards)
        self.locks[: old.shape[0], : old.shape[1]] = old
        for row, holders in self._holders.items():
            more = range(cards - len(holders))
            holders.extend({} for _ in more)
            self._lists[row].extend(IDLE for _ in more)

    def clear(self, row: int) -> None:
        """Forget the holders of the cards of a row."""
        if self._holders.pop(row, None) is not None:
            del self._lists[row]
            self.locks[row] = IDLE

    def hold(self, row: int, card: int, isolation: str, sign: int) -> None:
        """Count a holder of a card, or with -1 count it no more."""
        if row not in self._holders:
            cards = range(self.locks.shape[1])
            self._holders[row], self._lists[row] = [{} for _ in cards], [IDLE for _ in cards]
        held, code = self._holders[row][card], self.code(isolation)
        held[code] = held.get(code, 0) + sign
        if not held[code]:
            del held[code]
        lock = MIXED if len(held) > 1 else next(iter(held), IDLE)
        if lock != self._lists[row][card]:
            self.locks[row, card] = self._lists[row][card] = lock

    def of_row(self, row: int) -> Sequence[int]:
        """Return the locks of the cards of a row as plain numbers; empty if none was ever locked."""
        return self._lists.get(row, ())

    def permits(self, row: int, card: int, isolation: str) -> bool:
        """Whether a pod with an isolation may hold a part of a card."""
        locks = self.of_row(row)
        return not locks or locks[card] in (IDLE, self.code(isolation))

    def names(self, row: int, card: int) -> str:
        """Return the isolations of the holders of a card, for messages."""
        held = self._holders[row][card] if row in self._holders else {}
        return ", ".join(sorted({str(name) for name, code in self._codes.items() if code in held}))


def _none(rows: int, cards: int) -> Locks:
    return np.zeros((cards, rows), np.int64).T
