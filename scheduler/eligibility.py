"""Which nodes a class of pods may use besides their cards: worked out once, then kept by difference.

Pods of a class agree in everything that a node is asked for them alone: selectors, tolerations, CPU, ports. Pods whose
neighbours matter, by affinity or spread, are in no class: where they may run changes with every other pod.
"""

from collections.abc import Hashable, Mapping

import numpy as np

from allocation.card_table import Flags
from allocation.ledger import Ledger
from scheduler.fleet import Fleet, PodClass


class Eligibility:
    """The nodes with cards that one class of pods may use now; an `allocation.shape.Eligible`."""

    def __init__(self, *, ledger: Ledger, fleet: Fleet, closed: Mapping[str, str], pods: PodClass, count: int) -> None:
        """Judge by `fleet` and `closed`, whose changes are in the ledger's log; a pod takes `count` shares of cards."""
        self._ledger = ledger
        self._fleet = fleet
        self._closed = closed
        self._pods = pods
        self._count = count
        self._mark = -1
        self._rows: Flags = np.zeros(0, np.bool_)

    def rows(self) -> Flags:
        """Answer it for every row of the ledger."""
        changes = self._ledger.changes
        changed = changes.since(self._mark) if self._mark >= 0 else None
        if changed is None:
            self._rows = np.zeros(self._ledger.fullness.shape, np.bool_)
            changed = set(self._ledger.order().tolist())
        for entry in changed:
            row = entry if entry >= 0 else ~entry
            self._rows[row] = self.row(row)
        self._mark = changes.mark
        return self._rows

    def row(self, row: int) -> bool:
        """Answer it for one row that is in use."""
        node = self._ledger.node(row)
        return (
            node not in self._closed
            and self._fleet.admits(self._pods, node)
            and not self._fleet.is_short(node, self._count)
        )


def key(pods: PodClass, count: int) -> Hashable:
    """Answer what tells the eligibility of one class of pods from another's."""
    return pods.key, count
