"""A fleet as the reference policies see it: what is free, as columns with a row for each node."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.workload import WHOLE, Machine, Task

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Choice(msgspec.Struct, frozen=True):
    """A node and the positions of its cards for a task."""

    node: int
    cards: tuple[int, ...] = ()


class Fleet:
    """What is free.

    Attributes:
        cpu: millicores; shape (node,).
        memory: MiB; shape (node,).
        cards: millicards, 0 where a node has no such card; shape (node, card).
        models: the position of each node's model in `model_names`.
        changed: the nodes that have changed, in order.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        """Begin with nothing in use."""
        self.cpu: Column = np.array([each.cpu for each in machines], np.int64)
        self.memory: Column = np.array([each.memory for each in machines], np.int64)
        counts = np.array([each.cards for each in machines])
        self.cards: Column = np.where(np.arange(counts.max()) < counts[:, np.newaxis], WHOLE, 0)
        self.model_names = sorted({each.model for each in machines})
        self.models: Column = np.array([self.model_names.index(each.model) for each in machines])
        self.changed: list[int] = []

    def fits(self, task: Task) -> Mask:
        """Return which nodes have room for a task."""
        fits: Mask = (self.cpu >= task.cpu) & (self.memory >= task.memory)
        if task.cards:
            fits &= (self.cards >= task.milli).sum(axis=1) >= task.cards
        if task.models:
            accepted = [position for position, name in enumerate(self.model_names) if name in task.models]
            fits &= np.isin(self.models, accepted)
        return fits

    def fullest(self, node: int, task: Task) -> tuple[int, ...]:
        """Return the cards of a node with the least room for a task."""
        free = self.cards[node]
        places = np.flatnonzero(free >= task.milli)
        return tuple(places[np.argsort(free[places], kind="stable")][: task.cards].tolist())

    def add(self, task: Task, choice: Choice) -> None:
        """Count a task."""
        self._change(task, choice, 1)

    def remove(self, task: Task, choice: Choice) -> None:
        """Count a task no more."""
        self._change(task, choice, -1)

    def _change(self, task: Task, choice: Choice, sign: int) -> None:
        self.cpu[choice.node] -= sign * task.cpu
        self.memory[choice.node] -= sign * task.memory
        self.cards[choice.node, list(choice.cards)] -= sign * task.milli
        self.changed.append(choice.node)
