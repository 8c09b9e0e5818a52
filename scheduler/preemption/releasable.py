"""What the cards of all nodes would have free if pods of low priority were gone, as columns.

It is kept by priority and read again only for nodes that changed, so that a question costs a few operations on columns.
The result is an upper bound: it does not check whether each of these pods may be preempted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Charge
from allocation.ledger.card_table import CORES, MEMORY, SLOTS, Columns
from allocation.ledger.isolation_locks import IDLE, MIXED
from allocation.ledger.ledger import Ledger
from allocation.placement import fit
from allocation.placement.fit import ConstraintMasks
from allocation.placement.query import PlacementQuery
from allocation.steps import Steps
from allocation.victims import LOWEST_PRIORITY

LEAVING: Final = LOWEST_PRIORITY - 1
"""The level of pods that are being deleted, whatever their priority."""
_STEP: Final = 16
_ROWS: Final = 1024
"""The number of rows that are ordered in one step."""

LevelOf = Callable[[str], int | None]
"""Returns the priority of the pod with a UID, or `LEAVING`; None if no pod may preempt it."""


class Releasable:
    """The cards that the pods of each priority hold."""

    def __init__(self, ledger: Ledger, level_of: LevelOf) -> None:
        """Follow the changes of `ledger`."""
        self._ledger = ledger
        self._level_of = level_of
        self._held: dict[int, Columns] = {}
        self._mark = -1

    def levels(self, below: int) -> list[int]:
        """Return the priorities below one that pods with cards have or had, the lowest first."""
        return sorted(level for level in self._held if level < below)

    def refresh(self) -> Steps[None]:
        """Read the nodes again that have changed."""
        ledger = self._ledger
        changed, self._mark = ledger.changes.since(self._mark), ledger.changes.mark
        if changed is None or any(each.shape != ledger.used.shape for each in self._held.values()):
            self._held.clear()
            rows: Sequence[int] = ledger.order().tolist()
        else:
            rows = sorted({entry if entry >= 0 else ~entry for entry in changed})
        for place, row in enumerate(rows):
            if place % _STEP == _STEP - 1:
                yield
                if not ledger.changes.reaches(self._mark):
                    return  # rows belong to other nodes now; the next call reads all of them
            self._read(row)

    def order(self, query: PlacementQuery, below: int) -> Steps[Iterator[str]]:
        """Return the nodes whose cards may take the pod without the pods below a priority: the least to free first.

        A node may change after it was read.
        """
        names, lacks = list[str](), [np.zeros(0)]
        for begin in range(0, len(self._ledger.present), _ROWS):
            yield
            rows, lack = self._lacks(query, slice(begin, begin + _ROWS), below)
            names += self._ledger.names(rows)
            lacks.append(lack)
        yield
        return map(names.__getitem__, np.argsort(np.concatenate(lacks), kind="stable").tolist())

    def _lacks(self, query: PlacementQuery, part: slice, below: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return those rows of a part of the ledger whose cards may take the pod, and how much each has to free."""
        cards = ConstraintMasks(self._ledger, query.constraints).cards(part)
        now = cards.used
        cards.used = now.copy()
        for level in self.levels(below):
            held = self._held[level][:, part]
            _, rows_read, cards_read = held.shape
            cards.used[:, :rows_read, :cards_read] -= held  # the ledger may have grown since
        if cards.locks is not None:  # a card that is idle then is locked no more, and one with several may be
            cards.locks = np.where((cards.used[SLOTS] > 0) & (cards.locks != MIXED), cards.locks, IDLE)
        containers = query.request.gpu_containers
        fits = [fit.fitting(cards, query.for_container(each)) for each in containers]
        rows = np.arange(len(cards.present))
        for container, each in zip(containers, fits, strict=True):
            rows = rows[np.count_nonzero(each[rows], axis=1) >= container.count]
        lack = np.zeros(len(rows))
        for container, each in zip(containers, fits, strict=True):
            memory = fit.requested_memory(cards.whole_mib[rows], container)
            over = np.where(each[rows], _lack(cards.total[:, rows], now[:, rows], memory), np.inf)
            lack += np.partition(over, container.count - 1, axis=1)[:, : container.count].sum(axis=1)
        return cards.rows[rows], lack

    def _read(self, row: int) -> None:
        """Read what the pods of one node hold."""
        for held in self._held.values():
            held[:, row] = 0
        ledger = self._ledger
        for each in ledger.reservations(ledger.node(row)):
            level = self._level_of(each.uid) if each.is_pod and not each.assumed else None
            if level is None:
                continue
            if level not in self._held:
                # Not zeros_like, which writes the whole column in this one step.
                self._held[level] = np.zeros(ledger.used.shape, ledger.used.dtype)
            for charge in each.charges:
                self._add(self._held[level], row, charge)

    def _add(self, held: Columns, row: int, charge: Charge) -> None:
        ledger = self._ledger
        for uuid in (charge.uuid, charge.parent) if charge.parent else (charge.uuid,):
            position = ledger.position(uuid)
            if position is None or position[0] != row:
                continue
            charged = ledger.total[:, *position] if charge.whole else ledger.charged(charge, *position)
            held[:, row, position[1]] += charged


def _lack(total: Columns, used: Columns, memory: NDArray[np.int64] | np.int64) -> NDArray[np.float64]:
    """Return for each card which parts of it have to become free, roughly: 0 where enough is free."""
    capacity = np.maximum(total[MEMORY], 1)
    lack = np.maximum(used[MEMORY] + memory - total[MEMORY], 0) / capacity
    busy: NDArray[np.float64] = lack + used[CORES] / np.maximum(total[CORES], 1) * 1e-3
    return busy
