"""Fragmentation Gradient Descent, written here from "Beware of Fragmentation" (USENIX ATC '23), sections 4 and 5.

The fragmentation of a node is the expected part of its free cards that a task of the workload cannot use: all of it if
the task does not fit, else the cards with too little room for it. A task goes where fragmentation grows least; of
equal nodes, to the one with the fewest free cards, which allocates more than the first. The policy is given the shares
of all tasks in advance.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.fleet import Choice, Column, Fleet
from benchmarks.packing.workload import Task


class Fgd:
    """The policy in one fleet; what it knows of a node and a task stays valid until the node changes."""

    def __init__(self, fleet: Fleet, shares: Mapping[Task, int]) -> None:
        """Expect each task as often as `shares` has it."""
        self._fleet = fleet
        tasks = [each for each in shares if each.cards]
        total = sum(shares.values())
        self._shares = np.array([shares[each] / total for each in tasks])
        self._others = 1.0 - self._shares.sum()
        self._cpu = np.array([each.cpu for each in tasks])
        self._cards = np.array([each.cards for each in tasks])
        self._millis, self._milli_of = np.unique([each.milli for each in tasks], return_inverse=True)
        names = fleet.model_names
        self._accepts = np.array([[not each.models or name in each.models for each in tasks] for name in names])
        self._fragmentation = self._of(fleet.cpu, fleet.cards, fleet.models)
        self._mark = 0
        self._known: dict[Task, tuple[int, NDArray[np.float64], Column]] = {}

    def choose(self, task: Task) -> Choice | None:
        """See Policy (`benchmarks.packing.reference`)."""
        fleet = self._fleet
        self._refresh()
        mark, growth, card = self._known.get(task, (None, np.zeros(len(fleet.cpu)), np.zeros(len(fleet.cpu), np.int64)))
        stale = np.arange(len(fleet.cpu)) if mark is None else np.unique(np.array(fleet.changed[mark:], np.int64))
        if stale.size:
            growth[stale], card[stale] = self._growths(task, stale)
        self._known[task] = (len(fleet.changed), growth, card)
        fits = fleet.fits(task)
        if not fits.any():
            return None
        growths = np.where(fits, np.round(growth, 6), np.inf)
        least = np.flatnonzero(growths == growths.min())
        node = int(least[np.argmin(fleet.cards[least].sum(axis=1))])
        if task.cards != 1:
            return Choice(node, fleet.fullest(node, task))
        return Choice(node, (int(card[node]),))

    def end(self, task: Task, choice: Choice) -> None:
        """See Policy."""

    def _refresh(self) -> None:
        fleet = self._fleet
        stale = np.unique(np.array(fleet.changed[self._mark :], np.int64))
        self._mark = len(fleet.changed)
        if stale.size:
            self._fragmentation[stale] = self._of(fleet.cpu[stale], fleet.cards[stale], fleet.models[stale])

    def _growths(self, task: Task, nodes: Column) -> tuple[NDArray[np.float64], Column]:
        """Return how much the fragmentation of each node grows by a task, and the card for which it grows least."""
        fleet = self._fleet
        cards, cpu, models = fleet.cards[nodes], fleet.cpu[nodes] - task.cpu, fleet.models[nodes]
        before = self._fragmentation[nodes]
        if task.cards != 1:
            after = cards.copy()
            if task.cards:  # only cards without any task fit, which are all alike
                free = (after >= task.milli) & ((after >= task.milli).cumsum(axis=1) <= task.cards)
                after[free] -= task.milli
            return self._of(cpu, after, models) - before, np.zeros(len(nodes), np.int64)
        best, chosen = np.full(len(nodes), np.inf), np.zeros(len(nodes), np.int64)
        for card in range(cards.shape[1]):
            has_room = cards[:, card] >= task.milli
            is_new = has_room & ~(cards[:, :card] == cards[:, card : card + 1]).any(axis=1)
            rows = np.flatnonzero(is_new)
            if not rows.size:
                continue
            after = cards[rows].copy()
            after[:, card] -= task.milli
            growth = self._of(cpu[rows], after, models[rows]) - before[rows]
            is_better = growth < best[rows]
            best[rows[is_better]], chosen[rows[is_better]] = growth[is_better], card
        return best, chosen

    def _of(self, cpu: Column, cards: Column, models: Column) -> NDArray[np.float64]:
        """Return the fragmentation of nodes, in millicards."""
        free = cards.sum(axis=1)
        has_room = cards[:, :, np.newaxis] >= self._millis
        counts = has_room.sum(axis=1)[:, self._milli_of]
        too_small = np.where(has_room, 0, cards[:, :, np.newaxis]).sum(axis=1)[:, self._milli_of]
        fits = (counts >= self._cards) & (cpu[:, np.newaxis] >= self._cpu) & self._accepts[models]
        lost: NDArray[np.float64] = np.where(fits, too_small, free[:, np.newaxis]) @ self._shares
        lost += free * self._others
        return lost
