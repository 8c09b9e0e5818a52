"""How good a node is for a pod: by the best set of its cards, then by its fabric, then by how full it is.

Most pods demand nothing of topology and fabric; for them a node is as good as its score, by the pod's node policy. What
the pod costs those that come after it is subtracted.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.constraints import Constraints
from allocation.ledger.ledger import Ledger
from allocation.placement.card_sets import CardSets
from allocation.placement.node_platforms import NodePlatforms
from allocation.placement.stranding import Stranding
from allocation.request import ContainerRequest

_WORTH: Final = 1000.0
"""A GB/s counts more than the difference between an empty node and a full one, which is 30, and than three cards."""


class NodeValues:
    """The values of nodes for pods with the same constraints and containers; higher is better.

    Attributes:
        sign: 1 if full nodes are preferred, -1 if empty ones are.
        sets: the sets of cards, if the demand on topology rejects or ranks nodes; None otherwise.
        platforms: the platforms of nodes, if the pod demands anything of them; None otherwise.
    """

    def __init__(
        self,
        ledger: Ledger,
        constraints: Constraints,
        containers: Sequence[ContainerRequest] = (),
        stranding: Stranding | None = None,
    ) -> None:
        topology = constraints.topology
        self.sign = 1.0 if constraints.node_policy == "binpack" else -1.0
        concerns_nodes = topology is not None and (topology.is_required or topology.ranks_nodes)
        self.sets = CardSets(ledger, topology) if topology is not None and concerns_nodes else None
        self.platforms = NodePlatforms(ledger, constraints) if constraints.demands_platform else None
        self._prefers = constraints.fabric is not None
        self._ledger = ledger
        self._containers = containers
        self._stranding = stranding

    @property
    def is_score(self) -> bool:
        """Whether a node is as good as its score."""
        return self.sets is None and not self._prefers and self._stranding is None

    def of_rows(
        self, rows: NDArray[np.int64], worths: NDArray[np.float64], scores: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the value of each of `rows`, given the worth of its sets and its score."""
        values: NDArray[np.float64] = self.sign * scores
        if self._stranding is not None:
            values = values - self._stranding.of_rows(self._ledger, rows, self._containers)
        if self.sets is None and not self._prefers:
            return values
        preferences = self.platforms.preferences(rows) if self.platforms is not None else 0.0
        return _WORTH * (worths + preferences) + values

    def of_row(self, row: int, worth: float, score: float) -> float:
        """Return the value of a node with sets of this worth, the smallest of all containers, and this score."""
        value = self.sign * score
        if self._stranding is not None:
            value -= self._stranding.of_row(self._ledger, row, self._containers)
        if self.sets is None and not self._prefers:
            return value
        return _WORTH * (worth + (self.platforms.preference(row) if self.platforms is not None else 0.0)) + value
