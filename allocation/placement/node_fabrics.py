"""Which nodes a pod rejects for their fabric, and which it prefers: computed once for each kind of fabric."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation import fabric
from allocation.fabric import NO_FABRIC, Fabric, FabricDemand
from allocation.ledger.ledger import Ledger
from allocation.placement import rejection
from allocation.placement.rejection import Rejection
from allocation.reasons import NodeReason, NodeRejection

_MOST_JUDGED: Final = 4096
"""Fabrics whose judgement a ranking keeps."""


class NodeFabrics:
    """The fabric of each node, for one demand."""

    def __init__(self, ledger: Ledger, demand: FabricDemand) -> None:
        self._ledger = ledger
        self._demand = demand
        self._judged: dict[Fabric, tuple[Rejection | None, float]] = {}

    def rejection(self, row: int) -> Rejection | None:
        """Return the rejection by the node of one row, or None if its fabric takes the pod; nodes share the objects."""
        return self._judge(self._ledger.fabric_kinds.values[self._ledger.fabrics.item(row)])[0]

    def preference(self, row: int) -> float:
        """Return how much the pod prefers the fabric of one row: 0 to less than 1."""
        return self._judge(self._ledger.fabric_kinds.values[self._ledger.fabrics.item(row)])[1]

    def accepted(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether the fabric of each of `rows` takes the pod."""
        accepted = np.array([self._judge(kind)[0] is None for kind in self._kinds()], np.bool_)
        return accepted[self._ledger.fabrics[rows]]

    def preferences(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the preference for each of `rows`."""
        preferences = np.array([self._judge(kind)[1] for kind in self._kinds()])
        return preferences[self._ledger.fabrics[rows]]

    def _kinds(self) -> list[Fabric]:
        """Return the fabrics by number; a ledger without nodes has unused rows all the same."""
        return self._ledger.fabric_kinds.values or [NO_FABRIC]

    def _judge(self, kind: Fabric) -> tuple[Rejection | None, float]:
        judged = self._judged.get(kind)
        if judged is None:
            if len(self._judged) == _MOST_JUDGED:
                self._judged.clear()
            text = fabric.rejection(self._demand, kind)
            refusal = rejection.of_node(NodeRejection(NodeReason.FabricMismatch, text, resolvable=False))
            judged = self._judged[kind] = (refusal if text else None, fabric.preference(self._demand, kind))
        return judged
