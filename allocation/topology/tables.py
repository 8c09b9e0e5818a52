"""The layouts of all nodes by number, and the tables of sets that were used last."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.interned import Interned
from allocation.topology import large_node
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import Layout
from allocation.topology.order import least_linked
from allocation.topology.set_table import SetTable
from allocation.topology.subsets import MOST_CARDS, Subsets

_TABLES_BYTES: Final = 10 << 20
"""Room for 64 tables of 16 cards, or some thousands of 8."""
_USERS_TABLES_BYTES: Final = 2 << 20
"""Room for the tables for preferIds, of which users can write very many: they must not displace the others."""
_SUBSETS: Final = 8
"""Layouts whose subsets are kept: 1 MiB of 16 cards, of which the next demand on them makes its tables sooner."""
_DEMANDS: Final = 1024


class TopologyTables:
    """Finds the best set of free cards of a node. Free cards are a mask of the bits of the node's layout."""

    def __init__(self) -> None:
        self._interned: Interned[Layout] = Interned(self._forget)
        self.layouts = self._interned.values
        self._tables = TableCache(_TABLES_BYTES)
        self._users_tables = TableCache(_USERS_TABLES_BYTES)
        self._subsets: OrderedDict[int, Subsets] = OrderedDict()
        self._demands: dict[tuple[int, TopologyDemand], TopologyDemand] = {}

    def acquire(self, layout: Layout) -> int:
        """Return the number of a layout, its position in `layouts`; it is valid until it is released.

        What most demands need of the first layouts is computed here, and not in the decision about the first claim.
        """
        number = self._interned.acquire(layout)
        if number not in self._subsets and len(self._subsets) < _SUBSETS and len(layout) <= MOST_CARDS:
            self._subsets_of(number).prepare()
        return number

    def release(self, number: int) -> None:
        """Give back the number of a layout that a node does not have any more."""
        self._interned.release(number)

    def worth(self, layout: int, free: int, count: int, demand: TopologyDemand) -> float:
        """Return how good the best set of `count` free cards is.

        -inf if the demand accepts none, 0 if the demand does not rank nodes; higher is better, in steps of 1 per GB/s.
        """
        if free.bit_count() < count:
            return -np.inf
        if len(self.layouts[layout]) > MOST_CARDS:
            return large_node.worth(self.layouts[layout], free, count, self._reduced(layout, demand))
        return self.table(layout, count, demand).worth(free)

    def worths(
        self, layouts: NDArray[np.int64], free: NDArray[np.int64], count: int, demand: TopologyDemand
    ) -> NDArray[np.float64]:
        """Return the worth for each node of a layout number and a mask; both have shape (node,).

        Masks do not hold the cards of a node with more than `MOST_CARDS`: such nodes are left to `worth`, and have NaN.
        """
        worths = np.full(len(layouts), np.nan)
        for layout in np.flatnonzero(np.bincount(layouts)).tolist():
            if len(self.layouts[layout]) <= MOST_CARDS:
                rows = layouts == layout
                if count > len(self.layouts[layout]):
                    worths[rows] = -np.inf
                else:
                    worths[rows] = self.table(layout, count, demand).worths(free[rows])
        return worths

    def choose(
        self, layout: int, free: int, count: int, demand: TopologyDemand, *, preference: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the bits of the best set of `count` free cards, ascending; empty if the demand accepts none.

        `preference` has the free bits, the preferred ones first; it decides between equal sets.
        """
        if free.bit_count() < count:
            return ()
        if len(self.layouts[layout]) > MOST_CARDS:
            reduced = self._reduced(layout, demand)
            return large_node.choose(self.layouts[layout], free, count, reduced, preference=preference)
        if count == 1 and demand.policy == "linked":
            return (least_linked(self.layouts[layout], preference),)
        return self.table(layout, count, demand).choose(free, preference)

    @property
    def nbytes(self) -> int:
        """The size in bytes of all tables, and of what they are made of."""
        subsets = sum(each.nbytes for each in self._subsets.values())
        return self._tables.nbytes + self._users_tables.nbytes + subsets

    def table(self, layout: int, count: int, demand: TopologyDemand) -> SetTable:
        """Return the table of the sets of `count` cards, which are at most as many as the layout has."""
        demand = self._reduced(layout, demand)
        tables = self._users_tables if demand.prefer_ids else self._tables
        key = (layout, count, demand)
        table = tables.get(key)
        if table is None:
            table = SetTable(self._subsets_of(layout), count, demand)
            tables.add(key, table)
        return table

    def _reduced(self, layout: int, demand: TopologyDemand) -> TopologyDemand:
        """Return the equivalent demand that sets are searched for; of different demands most are alike on a layout."""
        reduced = self._demands.get((layout, demand))
        if reduced is None:
            reduced = demand.on(self.layouts[layout])
            if len(self._demands) == _DEMANDS:
                del self._demands[next(iter(self._demands))]
            self._demands[layout, demand] = reduced
        return reduced

    def _forget(self, layout: int) -> None:
        """Forget what was computed for a layout whose number another one gets."""
        self._tables.forget(layout)
        self._users_tables.forget(layout)
        self._subsets.pop(layout, None)
        self._demands = {key: demand for key, demand in self._demands.items() if key[0] != layout}

    def _subsets_of(self, layout: int) -> Subsets:
        subsets = self._subsets.get(layout)
        if subsets is None:
            subsets = self._subsets[layout] = Subsets(self.layouts[layout])
            if len(self._subsets) > _SUBSETS:
                self._subsets.popitem(last=False)
        self._subsets.move_to_end(layout)
        return subsets


TableKey = tuple[int, int, TopologyDemand]
"""The number of a layout, how many cards a set has, and the demand on this layout (`TopologyDemand.on`)."""

_OVERHEAD: Final = 2048
"""Bytes of a table in addition to its arrays, so that tables of few cards count as well."""


class TableCache:
    """Forgets the tables that were not used for the longest time, if all take more than `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._tables: OrderedDict[TableKey, SetTable] = OrderedDict()
        self.nbytes = 0

    def get(self, key: TableKey) -> SetTable | None:
        """Return a table, or None if it is not there."""
        table = self._tables.get(key)
        if table is not None:
            self._tables.move_to_end(key)
        return table

    def add(self, key: TableKey, table: SetTable) -> None:
        """Keep a new table."""
        self._tables[key] = table
        self.nbytes += table.nbytes + _OVERHEAD
        while self.nbytes > self._most_bytes:
            self.nbytes -= self._tables.popitem(last=False)[1].nbytes + _OVERHEAD

    def forget(self, layout: int) -> None:
        """Drop the tables of a layout."""
        for key in [key for key in self._tables if key[0] == layout]:
            self.nbytes -= self._tables.pop(key).nbytes + _OVERHEAD
