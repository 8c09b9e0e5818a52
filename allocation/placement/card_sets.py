"""The sets of fitting cards that a pod accepts on a node, and how good the best one is: the ledger's side of topology.

MIG instances cannot reach other cards over NVLink. They belong to no set, so a pod that requires one gets none of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import Flags
from allocation.ledger.ledger import Ledger
from allocation.topology.demand import TopologyDemand

NO_SET = -np.inf
"""The worth of a node without a set that the pod accepts."""


class CardSets:
    """The sets of cards of each node, for one demand."""

    def __init__(self, ledger: Ledger, demand: TopologyDemand) -> None:
        self._ledger = ledger
        self._topology = ledger.topology
        self._demand = demand

    def worths(self, rows: NDArray[np.int64], fits: Flags, count: int) -> NDArray[np.float64]:
        """Return the worth of the best set of `count` cards among those that fit; `fits` has shape (row, card)."""
        ledger = self._ledger
        free = np.einsum("rc,rc->r", fits, ledger.masks[rows, : fits.shape[1]])
        worths = self._topology.worths(ledger.layouts[rows], free, count, self._demand)
        for place in np.flatnonzero(np.isnan(worths)).tolist():
            worths[place] = self.worth(rows.item(place), np.flatnonzero(fits[place]).tolist(), count)
        if not self._demand.is_required:
            worths[worths == NO_SET] = 0.0
        return worths

    def worth(self, row: int, fitting: Sequence[int], count: int) -> float:
        """Return the worth of the best set of `count` cards among those at the positions `fitting` of one node.

        It is 0 if no set is needed and too few cards are undivided.
        """
        facts = self._ledger.facts(row)
        worth = self._topology.worth(facts.layout, _mask(facts.bits, fitting), count, self._demand)
        return 0.0 if worth == NO_SET and not self._demand.is_required else worth

    def choose(self, row: int, preferred: Sequence[int], count: int) -> list[int]:
        """Return the positions of the best set of `count` cards among `preferred`, which has the preferred ones first.

        Empty if the demand accepts none; the first ones if no set is needed and too few cards are undivided.
        """
        facts = self._ledger.facts(row)
        position_of = {facts.bits[position]: position for position in preferred if facts.bits[position] >= 0}
        free = _mask(facts.bits, preferred)
        bits = self._topology.choose(facts.layout, free, count, self._demand, preference=list(position_of))
        if not bits and not self._demand.is_required:
            return [*preferred[:count]]
        return [position_of[bit] for bit in bits]


def _mask(bits: Sequence[int], positions: Sequence[int]) -> int:
    """Return the mask of the undivided cards at some positions."""
    mask = 0
    for position in positions:
        if bits[position] >= 0:
            mask |= 1 << bits[position]
    return mask
