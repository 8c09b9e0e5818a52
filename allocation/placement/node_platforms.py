"""Which nodes a pod rejects or prefers for what it demands other than cards, judged once for each platform."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation import fabric
from allocation.constraints import Constraints
from allocation.inventory import Platform
from allocation.ledger.ledger import Ledger
from allocation.placement import rejection
from allocation.placement.rejection import Rejection
from allocation.reasons import NodeReason, NodeRejection

_MOST_JUDGED: Final = 4096
"""Platforms whose judgement a ranking keeps."""


class NodePlatforms:
    """The platform of each node, for what one pod demands of it."""

    def __init__(self, ledger: Ledger, constraints: Constraints) -> None:
        self._ledger = ledger
        self._constraints = constraints
        self._judged: dict[Platform, tuple[Rejection | None, float]] = {}

    def rejection(self, row: int) -> Rejection | None:
        """Return the rejection by the node of one row, None if its platform takes the pod; nodes share the objects."""
        return self._judge(self._ledger.platform_kinds.values[self._ledger.platforms.item(row)])[0]

    def preference(self, row: int) -> float:
        """Return how much the pod prefers the platform of one row: 0 to less than 1."""
        return self._judge(self._ledger.platform_kinds.values[self._ledger.platforms.item(row)])[1]

    def accepted(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether the platform of each of `rows` takes the pod."""
        accepted = np.array([self._judge(kind)[0] is None for kind in self._kinds()], np.bool_)
        return accepted[self._ledger.platforms[rows]]

    def preferences(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the preference for each of `rows`."""
        preferences = np.array([self._judge(kind)[1] for kind in self._kinds()])
        return preferences[self._ledger.platforms[rows]]

    def _kinds(self) -> list[Platform]:
        """Return the platforms by number; a ledger without nodes has unused rows all the same."""
        return self._ledger.platform_kinds.values or [Platform()]

    def _judge(self, kind: Platform) -> tuple[Rejection | None, float]:
        judged = self._judged.get(kind)
        if judged is None:
            if len(self._judged) == _MOST_JUDGED:
                self._judged.clear()
            judged = self._judged[kind] = (self._reject(kind), self._prefer(kind))
        return judged

    def _reject(self, kind: Platform) -> Rejection | None:
        demand = self._constraints.fabric
        text = fabric.rejection(demand, kind.fabric) if demand is not None else ""
        if text:
            return rejection.of_node(NodeRejection(NodeReason.FabricMismatch, text, resolvable=False))
        if text := kind.isolation.rejection(self._constraints.isolation):
            return rejection.of_node(NodeRejection(NodeReason.IsolationUnavailable, text, resolvable=False))
        return None

    def _prefer(self, kind: Platform) -> float:
        demand = self._constraints.fabric
        return fabric.preference(demand, kind.fabric) if demand is not None else 0.0
