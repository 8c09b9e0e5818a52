"""What is left of each node, computed once and then for the rows that change."""

from collections.abc import Callable
from typing import Final

import numpy as np

from allocation.ledger.ledger import Ledger
from allocation.placement.host import Host, Hosts, Mix, host_of, set_host, set_mix, shape_of
from allocation.steps import Steps, finish

_STEP: Final = 32
"""Rows that are evaluated between two interruptions."""


class HostTable:
    """The hosts of one ledger; every change of what is left of a node is in `Ledger.changes`."""

    def __init__(self, ledger: Ledger, free: Callable[[int], tuple[int, int]]) -> None:
        """Read the free millicores and bytes of the node of a row by `free`."""
        self._ledger = ledger
        self._free = free
        self._kept: dict[int, Host] = {}
        self._kept_mark = -1
        self._kept_mix: Mix | None = None
        self._hosts: Hosts = np.zeros((0, 0))
        self._mark = -1
        self._mix: Mix | None = None

    def host(self, row: int, mix: Mix) -> Host:
        """Return what is left of the node of a row in use."""
        changes = self._ledger.changes
        if changes.mark != self._kept_mark or mix is not self._kept_mix:
            changed = changes.since(self._kept_mark)
            if changed is None or mix is not self._kept_mix:
                self._kept.clear()
            else:
                for entry in changed:
                    self._kept.pop(entry if entry >= 0 else ~entry, None)
            self._kept_mark, self._kept_mix = changes.mark, mix
        host = self._kept.get(row)
        if host is None:
            cpu, memory = self._free(row)
            host = self._kept[row] = host_of(self._ledger, row, mix, cpu=cpu, memory=memory)
        return host

    def prepare(self, mix: Mix) -> Steps[None]:
        """Read the rows that have changed, or every row, in steps."""
        changes, hosts = self._ledger.changes, self._hosts
        mark, changed = changes.mark, changes.since(self._mark)
        is_new = changed is None or hosts.shape != shape_of(self._ledger)
        if is_new:
            hosts, rows = np.zeros(shape_of(self._ledger)), self._ledger.order().tolist()
        else:
            rows = [*{max(entry, ~entry) for entry in changed or ()}]
        for position, row in enumerate(rows):
            if position % _STEP == _STEP - 1:
                yield
                if not changes.reaches(mark) or hosts.shape != shape_of(self._ledger):
                    return  # the rows belong to other nodes now, or there are more columns
            set_host(hosts, row, self.host(row, mix))
        self._mark, self._hosts = mark, hosts
        if is_new or mix is not self._mix:
            self._mix = mix if is_new else None  # some rows have another mix than the others

    def rows(self, mix: Mix) -> Hosts:
        """Return the hosts of all rows; that of a row that is not in use means nothing."""
        finish(self.prepare(mix))
        if mix is not self._mix:
            set_mix(self._hosts, self._ledger, mix)
            self._mix = mix
        return self._hosts
