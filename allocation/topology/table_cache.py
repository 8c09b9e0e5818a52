"""The tables of sets that were used last, within a budget of memory."""

from collections import OrderedDict
from typing import Final

from allocation.topology.demand import TopologyDemand
from allocation.topology.set_table import SetTable

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
