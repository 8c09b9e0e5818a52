"""The ranking of nodes for one kind of request: computed once, then updated incrementally.

Pods come in bursts of equal ones. The score of a node for such a pod changes only when the node does. After a first
pass over all columns, a decision evaluates the rows that changed since the last one and takes the maximum.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Allocation, charges
from allocation.constraints import Constraints
from allocation.ledger.card_table import Flags
from allocation.ledger.ledger import Ledger
from allocation.placement import fit, score
from allocation.placement.block_max import INFEASIBLE, BlockMax
from allocation.placement.card_sets import NO_SET
from allocation.placement.fit import ConstraintMasks
from allocation.placement.node_cards import ALL, NodeCards
from allocation.placement.node_values import NodeValues
from allocation.placement.placement import Placement, place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.stranding import Stranding
from allocation.quota import UNLIMITED, Headroom
from allocation.request import PodRequest
from allocation.steps import Steps

_FEW, _FRACTION = 32, 40
"""Up to `_FEW` changed rows, or one row in `_FRACTION`, are evaluated one by one: a pass over columns takes longer.

Measured from 100 to 20,000 nodes; a row takes some 4 µs, a pass 0.1 µs per row and at least 80 µs.
"""


class Eligible(Protocol):
    """Which nodes a pod may use, whatever their cards. The implementation records changes in `Ledger.changes`."""

    def prepare(self) -> Steps[None]:
        """Compute, in steps, whatever would make `rows` slow."""

    def rows(self) -> Flags:
        """Return for every row of the ledger whether its node is eligible."""

    def row(self, row: int) -> bool:
        """Return whether the node of one row in use is eligible."""


class NodeRanking:
    """The score of each node for pods with one request, the same constraints and the same eligible nodes."""

    def __init__(
        self,
        ledger: Ledger,
        request: PodRequest,
        constraints: Constraints,
        eligible: Eligible | None,
        stranding: Stranding | None = None,
    ) -> None:
        self._ledger = ledger
        self._containers, self._isolation = request.gpu_containers, request.isolation
        self._constraints = constraints
        self._eligible = eligible
        self._stranding = stranding
        self._mix = stranding.mix if stranding is not None else None
        self._node_values = NodeValues(ledger, constraints, self._containers, stranding)
        self._mark = -1
        self._rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self._ranks: NDArray[np.int64] = np.zeros(0, np.int64)
        self._values = BlockMax(np.zeros(0))
        self._failed: set[int] = set()

    def place(
        self, request: PodRequest, *, headroom: Headroom = UNLIMITED, runners_up: int = 0
    ) -> Steps[Placement | None]:
        """Choose a node and its cards for a request of this kind; None if no node fits.

        The scores are those of the chosen node and of as many `runners_up`; nodes that do not fit are not listed.
        `allocation.placement.placement.place` gives the reasons why no node fits.
        """
        stranding = self._stranding
        if self._eligible is not None and self._changed() is None:
            yield from self._eligible.prepare()
        if stranding is not None and not (stranding.is_prepared and self.is_known):
            yield from stranding.prepare()
        if stranding is not None and stranding.mix is not self._mix:
            self._mark = -1  # every node has another value, though the same nodes fit
        self._refresh()
        query = PlacementQuery(request, self._constraints, headroom)
        passed = list[tuple[int, float]]()
        # On each feasible node every container fits by itself; whether all fit together has to be tried.
        while (best := self._values.best())[1] != INFEASIBLE:
            row = self._rows.item(best[0])
            outcome = place_on(self._ledger, query, self._ledger.node(row))
            if isinstance(outcome, Allocation):
                scores = self._scores(best, runners_up)
                self._restore(passed)
                return Placement(outcome, charges(outcome, request), scores)
            self._values.set(best[0], INFEASIBLE)
            if headroom.is_limited:
                passed.append(best)
                if self._is_uniform(headroom):
                    break
            else:
                self._failed.add(row)
                yield
                self._refresh()
        self._restore(passed)
        return None

    def place_where(
        self, accepts: Callable[[str], bool], request: PodRequest, *, headroom: Headroom, most: int
    ) -> Placement | None:
        """Choose in one step the best node that `accepts` the pod, and its cards; None if none of the best `most` does.

        `place` must have found that some node fits.
        """
        self._refresh()
        query = PlacementQuery(request, self._constraints, headroom)
        passed = list[tuple[int, float]]()
        try:
            while len(passed) < most and (best := self._values.best())[1] != INFEASIBLE:
                name = self._node(best[0])
                outcome = place_on(self._ledger, query, name) if accepts(name) else None
                if isinstance(outcome, Allocation):
                    return Placement(outcome, charges(outcome, request), self._scores(best, 0))
                self._values.set(best[0], INFEASIBLE)
                passed.append(best)
            return None
        finally:
            self._restore(passed)

    def _is_uniform(self, headroom: Headroom) -> bool:
        """Whether only the headroom can reject a node on which every container fits, and then rejects all nodes."""
        only = self._containers[0] if len(self._containers) == 1 else None
        return (
            only is not None
            and only.memory_mib is not None
            and not only.tflops
            and headroom.tflops is None
            and not self._constraints.numa_bind
            and not self._ledger.mig_nodes
        )

    def _restore(self, passed: Sequence[tuple[int, float]]) -> None:
        for rank, value in passed:
            self._values.set(rank, value)

    @property
    def is_known(self) -> bool:
        """Whether only nodes that changed have to be evaluated, and not all of them."""
        return self._ledger.changes.reaches(self._mark)

    def count(self) -> int:
        """Return on how many nodes every container fits by itself."""
        self._refresh()
        return self._values.count

    def feasible(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows on which every container fits by itself, by node name, with their values.

        A higher value is better (`allocation.placement.node_values`).
        """
        self._refresh()
        values = self._values.values
        ranks = np.flatnonzero(values != INFEASIBLE)
        return self._rows[ranks], values[ranks]

    def _scores(self, best: tuple[int, float], runners_up: int) -> dict[str, float]:
        """Return the scores of `best` and of the next best nodes."""
        values, passed = self._values, [best]
        while len(passed) <= runners_up:
            values.set(passed[-1][0], INFEASIBLE)
            following = values.best()
            if following[1] == INFEASIBLE:
                break
            passed.append(following)
        if runners_up:
            self._restore(passed)
        if self._node_values.is_score:
            return {self._node(rank): value * self._node_values.sign for rank, value in passed}
        return {self._node(rank): self._score(self._rows.item(rank)) for rank, _ in passed}

    def _score(self, row: int) -> float:
        """Return how full the node of a row would be."""
        return score.node_score(self._ledger.fullness.item(row), self._ledger.facts(row), self._containers)

    def _node(self, rank: int) -> str:
        return self._ledger.node(self._rows.item(rank))

    def _changed(self) -> set[int] | None:
        """Return the rows that have changed; None if evaluating all of them takes less time."""
        changed = self._ledger.changes.since(self._mark)
        return changed if changed is not None and len(changed) <= max(_FEW, len(self._ranks) // _FRACTION) else None

    def _refresh(self) -> None:
        changes, values = self._ledger.changes, self._values
        if changes.mark == self._mark:
            return
        changed = self._changed()
        if changed is not None:
            for entry in changed:
                row = entry if entry >= 0 else ~entry
                if entry < 0 and row in changed:
                    continue  # it also changed otherwise, and is evaluated for that
                rank = self._ranks.item(row)
                # A failed trial may succeed after any change: with other cards free, containers choose other cards.
                if entry >= 0 or values.value(rank) != INFEASIBLE or row in self._failed:
                    self._failed.discard(row)
                    values.set(rank, self._evaluate(row))
        else:
            self._evaluate_all()
        self._mark = changes.mark

    def _evaluate_all(self) -> None:
        ledger = self._ledger
        self._mix = self._stranding.mix if self._stranding is not None else None
        cards = ConstraintMasks(ledger, self._constraints).cards(slice(None))
        query = PlacementQuery(PodRequest(self._containers, self._isolation), self._constraints)
        fits = np.ones(ledger.fullness.shape, np.bool_) if self._eligible is None else self._eligible.rows().copy()
        sets, platforms = self._node_values.sets, self._node_values.platforms
        worths = np.full(fits.shape, np.inf if sets is not None else 0.0)
        for container in self._containers:
            each = fit.fitting(cards, query.for_container(container))
            fits &= each.any(axis=1) if container.count == 1 else each.sum(axis=1) >= container.count
            if sets is not None:
                rows = np.flatnonzero(fits)
                worths[rows] = np.minimum(worths[rows], sets.worths(rows, each[rows], container.count))
                fits &= worths != NO_SET
        every = np.arange(len(fits))
        if platforms is not None:
            fits &= platforms.accepted(every)
        if ledger.rules.most_pods is not None:
            fits &= ledger.pods < ledger.rules.most_pods
        values = self._node_values.of_rows(every, worths, score.node_scores(ledger, self._containers))
        values = np.where(fits, values, INFEASIBLE)
        self._rows = ledger.order()
        self._ranks = np.zeros(values.shape, np.int64)
        self._ranks[self._rows] = np.arange(len(self._rows))
        self._values = BlockMax(values[self._rows])
        self._failed.clear()

    def _evaluate(self, row: int) -> float:
        ledger = self._ledger
        if self._eligible is not None and not self._eligible.row(row):
            return INFEASIBLE
        sets, platforms = self._node_values.sets, self._node_values.platforms
        if platforms is not None and platforms.rejection(row) is not None:
            return INFEASIBLE
        worth = np.inf if sets is not None else 0.0
        cards = NodeCards(ledger, row, self._constraints, self._isolation)
        for container in self._containers:
            fitting = cards.fitting(container, UNLIMITED, limit=container.count if sets is None else ALL)
            if len(fitting) < container.count:
                return INFEASIBLE
            if sets is not None:
                worth = min(worth, sets.worth(row, fitting, container.count))
                if worth == NO_SET:
                    return INFEASIBLE
        return self._node_values.of_row(row, worth, self._score(row))
