"""The nodes that an equivalence class of pods may use, whatever their cards: computed once, then updated for changes.

Pods of a class have the same selectors, tolerations, CPU requests, ports and so on. Inter-pod affinity and topology
spread are not included, because their results change with every other pod.
"""

from collections.abc import Collection

import numpy as np

from allocation.ledger.card_table import Flags
from allocation.ledger.ledger import Ledger
from allocation.steps import Steps, finish
from scheduler.filters.node_cache import EquivalenceClass, NodeCache

_STEP = 32
"""Nodes that are evaluated between two interruptions."""


class EligibleNodes:
    """The nodes with cards that one class of pods may use now (`allocation.placement.node_ranking.Eligible`)."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_cache: NodeCache,
        closed_nodes: Collection[str],
        pods: EquivalenceClass,
        count: int,
    ) -> None:
        """Evaluate `node_cache` and `closed_nodes`, whose changes the ledger logs, for pods with `count` shares."""
        self._ledger = ledger
        self._node_cache = node_cache
        self._closed = closed_nodes
        self._admits = node_cache.admission(pods)
        self._count = count
        self._mark = -1
        self._rows: Flags = np.zeros(0, np.bool_)

    def prepare(self) -> Steps[None]:
        """Evaluate every row in steps if necessary, so that only changes are left for `rows`."""
        changes = self._ledger.changes
        if changes.reaches(self._mark):
            return
        mark, rows = changes.mark, np.zeros(self._ledger.fullness.shape, np.bool_)
        for position, row in enumerate(self._ledger.order().tolist()):
            if position % _STEP == _STEP - 1:
                yield
                if not changes.reaches(mark):
                    return  # the rows belong to other nodes now
            rows[row] = self.row(row)
        self._mark, self._rows = mark, rows

    def rows(self) -> Flags:
        """Return whether the node of each row of the ledger is eligible."""
        finish(self.prepare())
        for entry in self._ledger.changes.since(self._mark) or ():
            row = entry if entry >= 0 else ~entry
            self._rows[row] = self.row(row)
        self._mark = self._ledger.changes.mark
        return self._rows

    def row(self, row: int) -> bool:
        """Return whether the node of one row, which must be in use, is eligible."""
        node = self._ledger.node(row)
        return node not in self._closed and self._admits(node) and not self._node_cache.is_short(node, self._count)
