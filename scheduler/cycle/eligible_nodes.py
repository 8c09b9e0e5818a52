"""The nodes that an equivalence class of pods may use, whatever their cards: computed once, then updated for changes.

Pods of a class have the same selectors, tolerations, CPU requests, ports and so on. Inter-pod affinity and topology
spread are not included, because their results change with every other pod.
"""

from collections.abc import Collection

import numpy as np

from allocation.ledger.ledger import Ledger
from allocation.ledger.row_table import RowTable
from scheduler.filters.node_filter import EquivalenceClass, NodeFilter


class EligibleNodes(RowTable):
    """The nodes with cards that one class of pods may use now (`allocation.placement.node_ranking.Eligible`)."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_filter: NodeFilter,
        closed_nodes: Collection[str],
        pods: EquivalenceClass,
        count: int,
    ) -> None:
        """Evaluate `node_filter` and `closed_nodes`, whose changes the ledger logs, for pods with `count` shares."""
        super().__init__(ledger, self.row, np.bool_)
        self._node_filter = node_filter
        self._closed = closed_nodes
        self._admits = node_filter.admission(pods)
        self._count = count

    def row(self, row: int) -> bool:
        """Return whether the node of one row, which must be in use, is eligible."""
        node = self._ledger.node(row)
        return node not in self._closed and self._admits(node) and not self._node_filter.is_short(node, self._count)
