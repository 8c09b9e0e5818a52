"""The nodes for one shape of request, each with how good it is: worked out once, then kept by difference.

Pods come in bursts of equal ones. What a node is worth to such a pod changes only when the node does, so after the
first pass over all columns a decision looks at the rows that changed since the last one, and takes the maximum.
"""

from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import fit, score
from allocation.allocation import Allocation, Charge, charges
from allocation.card_table import Flags
from allocation.constraints import Constraints
from allocation.fit import Demand
from allocation.ledger import Ledger
from allocation.node_cards import NodeCards
from allocation.placement import place_on
from allocation.quota import UNLIMITED, Room
from allocation.request import PodRequest
from allocation.standing import UNFIT, Standing

_FEW, _SHARE = 32, 40
"""Up to so many changed rows, or one of so many, are looked at one by one: a pass over columns takes longer than that.

Measured from 100 to 20,000 nodes; a row takes some 4 µs, a pass 0.1 µs a row and at least 80 µs.
"""


class Chosen(msgspec.Struct, frozen=True):
    """A decision.

    Attributes:
        allocation: the cards of each container.
        charges: what to reserve.
        score: of the node.
        rivals: the nodes next to it in order, with their scores, as far as they were asked for.
    """

    allocation: Allocation
    charges: tuple[Charge, ...]
    score: float
    rivals: tuple[tuple[str, float], ...] = ()


class Eligible(Protocol):
    """Which nodes a pod may use at all, whatever their cards; who answers tells changes to `Ledger.changes`."""

    def rows(self) -> Flags:
        """Answer it for every row of the ledger."""

    def row(self, row: int) -> bool:
        """Answer it for one row that is in use."""


class Shape:
    """What each node is worth to pods of one request, demands and eligibility."""

    def __init__(
        self, ledger: Ledger, request: PodRequest, constraints: Constraints, eligible: Eligible | None
    ) -> None:
        self._ledger = ledger
        self._containers = request.gpu_containers
        self._constraints = constraints
        self._eligible = eligible
        self._sign = 1.0 if constraints.node_policy == "binpack" else -1.0
        self._mutex = "mutex" in constraints.card_policies
        self._mark = -1
        self._rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self._ranks: NDArray[np.int64] = np.zeros(0, np.int64)
        self._standing = Standing(np.zeros(0))

    def place(self, request: PodRequest, *, room: Room = UNLIMITED, rivals: int = 0) -> Chosen | None:
        """Choose a node and its cards for a request of this shape, None where no node fits.

        Why none does, `allocation.placement.place` says. `rivals` are how many nodes are told besides.
        """
        self._refresh()
        standing, skipped = self._standing, list[tuple[int, float]]()
        # On each node that fits every container does by itself; whether all do together has to be tried.
        try:
            while (best := standing.best())[1] != UNFIT:
                node, worth = self._node(best[0]), best[1]
                outcome = place_on(self._ledger, request, node, constraints=self._constraints, room=room)
                if isinstance(outcome, Allocation):
                    others = self._others(skipped, best, rivals) if rivals else ()
                    return Chosen(outcome, charges(outcome, request), worth * self._sign, others)
                self._skip(skipped, best)
        finally:
            for rank, worth in skipped:
                standing.set(rank, worth)
        return None

    def count(self) -> int:
        """Answer on how many nodes every container fits by itself."""
        self._refresh()
        return self._standing.count

    def _others(
        self, skipped: list[tuple[int, float]], best: tuple[int, float], count: int
    ) -> tuple[tuple[str, float], ...]:
        """Answer the nodes behind `best`; what stands before them is added to `skipped`."""
        answer = []
        for _ in range(count):
            self._skip(skipped, best)
            best = self._standing.best()
            if best[1] == UNFIT:
                break
            answer.append((self._node(best[0]), best[1] * self._sign))
        return tuple(answer)

    def _skip(self, skipped: list[tuple[int, float]], best: tuple[int, float]) -> None:
        skipped.append(best)
        self._standing.set(best[0], UNFIT)

    def _node(self, rank: int) -> str:
        return self._ledger.node(self._rows.item(rank))

    def _refresh(self) -> None:
        changes, standing = self._ledger.changes, self._standing
        changed = changes.since(self._mark) if self._mark >= 0 else None
        if changed is not None and len(changed) <= max(_FEW, len(self._ranks) // _SHARE):
            for entry in changed:
                row = entry if entry >= 0 else ~entry
                rank = self._ranks.item(row)
                if entry >= 0 or standing.worth(rank) != UNFIT:
                    standing.set(rank, self._look(row))
        else:
            self._look_at_all()
        self._mark = changes.mark

    def _look_at_all(self) -> None:
        ledger = self._ledger
        cards = Demand(ledger, self._constraints).cards(slice(None))
        fits = np.ones(ledger.fullness.shape, np.bool_) if self._eligible is None else self._eligible.rows().copy()
        for container in self._containers:
            each = fit.fitting(cards, container, mutex=self._mutex, room=UNLIMITED)
            fits &= each.any(axis=1) if container.count == 1 else each.sum(axis=1) >= container.count
        worth = np.where(fits, score.node_scores(ledger, self._containers) * self._sign, UNFIT)
        self._rows = ledger.order()
        self._ranks = np.zeros(worth.shape, np.int64)
        self._ranks[self._rows] = np.arange(len(self._rows))
        self._standing = Standing(worth[self._rows])

    def _look(self, row: int) -> float:
        ledger = self._ledger
        if self._eligible is not None and not self._eligible.row(row):
            return UNFIT
        cards = NodeCards(ledger, row, self._constraints)
        for container in self._containers:
            if len(cards.fitting(container, UNLIMITED, enough=container.count)) < container.count:
                return UNFIT
        return score.node_score(ledger.fullness.item(row), ledger.facts(row), self._containers) * self._sign
