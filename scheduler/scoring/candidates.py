"""The nodes that take a pod, as columns from which preferences compute their scores for all nodes at once.

A decision over every node has a list of nodes. The fast path has rows of the ledger, for which the values are kept and
updated for changed nodes only, so that most decisions evaluate no node at all.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.ledger.row_table import RowTable
from allocation.steps import Steps
from scheduler.objects import Node

Scores = NDArray[np.int64]
"""A score of each candidate."""

_STEP: Final = 128
"""Nodes that are evaluated between two interruptions."""
_TABLES: Final = 128
"""Columns that are kept; each has an entry for every row of the ledger."""


class Candidates(Protocol):
    """The nodes that take a pod, in order."""

    def __len__(self) -> int:
        """Return the number of nodes."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the nodes."""

    def numbers(self, of: Callable[[Node], int], key: Hashable) -> Steps[Scores]:
        """Return `of` for each node; functions with equal keys must be equal, whatever happens to other nodes."""

    def labels(self, key: str) -> Steps[Sequence[str | None]]:
        """Return the value of a label of each node, None where a node does not have it."""


class NodeList:
    """Candidates that are evaluated one by one."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    @property
    def names(self) -> Sequence[str]:
        """The names of the nodes."""
        return [node.metadata.name for node in self._nodes]

    def numbers(self, of: Callable[[Node], int], key: Hashable) -> Steps[Scores]:  # noqa: ARG002 -- nothing is kept
        """Return `of` for each node."""
        values = []
        for position, node in enumerate(self._nodes):
            if position % _STEP == _STEP - 1:
                yield
            values.append(of(node))
        return np.array(values, np.int64)

    def labels(self, key: str) -> Steps[Sequence[str | None]]:
        """Return the value of a label of each node."""
        yield from ()
        return [node.metadata.labels.get(key) for node in self._nodes]


class NodeColumns:
    """The columns of all rows of the ledger that were used last."""

    def __init__(self, ledger: Ledger, nodes: Mapping[str, Node]) -> None:
        """Keep columns of `nodes`, by name, whose changes `ledger` logs."""
        self._ledger = ledger
        self._nodes = nodes
        self._tables: OrderedDict[Hashable, RowTable] = OrderedDict()

    def candidates(self, rows: NDArray[np.int64]) -> "LedgerNodes":
        """Return the nodes of `rows`, which must be in use."""
        return LedgerNodes(self, self._ledger.names(rows), rows)

    def column(self, of: Callable[[Node], Any], key: Hashable, dtype: type) -> Steps[NDArray[Any]]:
        """Return `of` for the node of each row in use."""
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = RowTable(self._ledger, lambda row: self._evaluate(of, row), dtype)
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        yield from table.prepare()
        return table.rows()

    def _evaluate(self, of: Callable[[Node], Any], row: int) -> Any:
        """Evaluate the node of a row; 0 for one of which only the cards are known, which no pod can use."""
        node = self._nodes.get(self._ledger.node(row))
        return of(node) if node is not None else 0


class LedgerNodes:
    """Candidates that have cards, with columns that are kept between decisions."""

    def __init__(self, columns: NodeColumns, names: Sequence[str], rows: NDArray[np.int64]) -> None:
        self.names = names
        self._columns = columns
        self._rows = rows

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._rows)

    def numbers(self, of: Callable[[Node], int], key: Hashable) -> Steps[Scores]:
        """Return `of` for each node."""
        column = yield from self._columns.column(of, key, np.int64)
        return column[self._rows]

    def labels(self, key: str) -> Steps[Sequence[str | None]]:
        """Return the value of a label of each node."""
        column = yield from self._columns.column(lambda node: node.metadata.labels.get(key), ("label", key), np.object_)
        values: list[str | None] = column[self._rows].tolist()
        return values
