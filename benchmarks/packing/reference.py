"""Published policies, each written here from its description in "Beware of Fragmentation" (USENIX ATC '23), section 6.

Random, DotProd, GpuPacking and BestFit. `benchmarks.packing.fgd` has the policy of that paper.
"""

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.fleet import Choice, Fleet
from benchmarks.packing.workload import WHOLE, Task

Scores = NDArray[np.float64]


class Policy(Protocol):
    """Chooses nodes and cards in one fleet."""

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes, or None if it fits nowhere."""

    def end(self, task: Task, choice: Choice) -> None:
        """Take note that a task has ended; the fleet counts it no more."""


class Lowest:
    """The node with the lowest score of those with room, and its fullest cards."""

    def __init__(self, fleet: Fleet, scores: Callable[[Fleet, Task], Scores]) -> None:
        """Score the nodes of `fleet`."""
        self._fleet = fleet
        self._scores = scores

    def choose(self, task: Task) -> Choice | None:
        """See Policy."""
        fits = self._fleet.fits(task)
        if not fits.any():
            return None
        node = int(np.argmin(np.where(fits, self._scores(self._fleet, task), np.inf)))
        return Choice(node, self._fleet.fullest(node, task))

    def end(self, task: Task, choice: Choice) -> None:
        """See Policy."""


def at_random(seed: int) -> Callable[[Fleet], Policy]:
    """Return the policy that chooses any node with room."""
    chance = np.random.default_rng(seed)
    return lambda fleet: Lowest(fleet, lambda each, _: chance.random(len(each.cpu)))


def dot_product(fleet: Fleet) -> Policy:
    """Return the policy that chooses the node whose free resources are least aligned with the task's."""
    cpu, cards = fleet.cpu.max(), fleet.cards.sum(axis=1).max()

    def scores(now: Fleet, task: Task) -> Scores:
        aligned: Scores = now.cpu / cpu * (task.cpu / cpu) + now.cards.sum(axis=1) / cards * (task.size / cards)
        return aligned

    return Lowest(fleet, scores)


def best_fit(fleet: Fleet) -> Policy:
    """Return the policy that chooses the node that has least left of CPU and cards."""
    cpu, cards = fleet.cpu.max(), fleet.cards.sum(axis=1).max()
    return Lowest(fleet, lambda now, _: now.cpu / cpu + now.cards.sum(axis=1) / cards)


def gpu_packing(fleet: Fleet) -> Policy:
    """Return the policy that prefers cards in use, then free cards of nodes in use, then free nodes."""
    total = fleet.cards.sum(axis=1)

    def scores(now: Fleet, task: Task) -> Scores:
        in_use = (now.cards < WHOLE) & (now.cards >= max(task.milli, 1))
        is_shared = in_use.any(axis=1) if task.milli < WHOLE else np.zeros(len(total), np.bool_)
        free = now.cards.sum(axis=1)
        stage = np.where(is_shared, 0.0, np.where(free < total, 1.0, 2.0))
        order: Scores = stage * 1e6 + free
        return order

    return Lowest(fleet, scores)


REFERENCES: Final[dict[str, Callable[[Fleet], Policy]]] = {
    "DotProd": dot_product,
    "GpuPacking": gpu_packing,
    "BestFit": best_fit,
}
