"""What a pod costs those that come after it, in cards: cards that it strands, and cards that others depend on.

A node strands cards that are free while its CPU or memory does not suffice for as many: no pod of the usual mix can
have them. A pod that requests much CPU strands cards where they are free, and none where they are in use. A model of
cards is dear if many pods accept no other. docs/packing.md has what this is worth on a production trace.

The formulas are evaluated for all nodes at once and for one node; a test compares both to the last bit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import CORES, MEMORY
from allocation.ledger.ledger import Ledger
from allocation.placement import score
from allocation.request import WHOLE_CARD, ContainerRequest
from allocation.steps import Steps

Hosts = NDArray[np.int64]
"""Shape (row, 2): free CPU in millicores and free memory in bytes."""
_Most = Callable[[Any, Any], Any]
"""`max`, or the same for arrays."""


class Mix(msgspec.Struct, frozen=True):
    """What pods request beside cards.

    Attributes:
        cpu: millicores per card.
        memory: bytes per card.
        prices: by model, the share of all requested cards for which only this model would do, divided by the model's
            share of all cards; models without such requests are left out.
    """

    cpu: float
    memory: float
    prices: Mapping[str, float] = {}


class Nodes(Protocol):
    """What nodes have beside cards, and what pods request of it. Changes are in `Ledger.changes`."""

    @property
    def mix(self) -> Mix | None:
        """What pods request; another object once that has changed noticeably. None while no node has cards."""

    def free(self, node: str) -> tuple[int, int]:
        """Return the free millicores and bytes of a node."""

    def prepare(self) -> Steps[None]:
        """Compute, in steps, whatever would make `columns` slow."""

    def columns(self, ledger: Ledger) -> Hosts:
        """Return what is free on the node of each row of a ledger; of a row that is not in use, anything."""


class Stranding:
    """What pods cost that request the same CPU and memory; the containers that request cards are given each time."""

    def __init__(self, nodes: Nodes, *, cpu: int, memory: int, points: float) -> None:
        """Count a card as `points` of a node's score; CPU in millicores, memory in bytes."""
        self._nodes = nodes
        self._cpu = cpu
        self._memory = memory
        self._points = points

    @property
    def mix(self) -> Mix | None:
        """See Nodes."""
        return self._nodes.mix

    def prepare(self) -> Steps[None]:
        """See Nodes."""
        return self._nodes.prepare()

    def of_rows(
        self, ledger: Ledger, rows: NDArray[np.int64], containers: Sequence[ContainerRequest]
    ) -> NDArray[np.float64]:
        """Return what the pod costs on the nodes of some rows, in points."""
        mix = self._nodes.mix
        if mix is None:
            return np.zeros(rows.shape)
        free, used, capacity = self._nodes.columns(ledger)[rows], ledger.used[:, rows].sum(axis=2), ledger.capacity
        memory, cores = score.requested_of_rows(ledger, containers)
        prices = np.array([mix.prices.get(model, 0.0) for model, _ in ledger.kind_names] or [0.0])
        costs: NDArray[np.float64] = self._points * self._cost(
            mix,
            capacity=(capacity[MEMORY, rows], capacity[CORES, rows]),
            used=(used[MEMORY], used[CORES]),
            more=(memory[rows], cores),
            host=(free[:, 0], free[:, 1]),
            price=prices[ledger.kinds[rows, 0]],
            most=np.maximum,
        )
        return costs

    def of_row(self, ledger: Ledger, row: int, containers: Sequence[ContainerRequest]) -> float:
        """Return what the pod costs on the node of a row in use, in points."""
        mix = self._nodes.mix
        if mix is None:
            return 0.0
        facts, used = ledger.facts(row), ledger.used_sums(row)
        cost: float = self._points * self._cost(
            mix,
            capacity=(facts.capacity[MEMORY], facts.capacity[CORES]),
            used=(used[MEMORY], used[CORES]),
            more=score.requested(facts, containers)[:2],
            host=self._nodes.free(ledger.node(row)),
            price=mix.prices.get(ledger.kind_names[facts.kinds[0]][0], 0.0) if facts.kinds else 0.0,
            most=max,
        )
        return cost

    def left(self, ledger: Ledger, node: str, containers: Sequence[ContainerRequest]) -> float:
        """Return how many cards are stranded on a node with the pod."""
        mix, row = self._nodes.mix, ledger.row(node)
        if mix is None or row is None:
            return 0.0
        facts, used, (cpu, memory) = ledger.facts(row), ledger.used_sums(row), self._nodes.free(node)
        more = score.requested(facts, containers)
        after = (used[MEMORY] + more[MEMORY], used[CORES] + more[CORES])
        free = _free((facts.capacity[MEMORY], facts.capacity[CORES]), after, max)
        stranded: float = _stranded(free, (cpu - self._cpu, memory - self._memory), mix, max)
        return stranded

    def _cost(
        self,
        mix: Mix,
        *,
        capacity: tuple[Any, Any],
        used: tuple[Any, Any],
        more: tuple[Any, Any],
        host: tuple[Any, Any],
        price: Any,
        most: _Most,
    ) -> Any:
        """Return the cost in cards; of cards, memory comes before compute, and of hosts CPU before memory."""
        before = _free(capacity, used, most)
        after = _free(capacity, (used[0] + more[0], used[1] + more[1]), most)
        left = (host[0] - self._cpu, host[1] - self._memory)
        return _stranded(after, left, mix, most) - _stranded(before, host, mix, most) + price * (before - after)


def _free(capacity: tuple[Any, Any], used: tuple[Any, Any], most: _Most) -> Any:
    """Return the free cards of a node, by the scarcer of device memory and compute."""
    share = most(used[0] / most(capacity[0], 1), used[1] / most(capacity[1], 1))
    return most(capacity[1] / WHOLE_CARD * (1.0 - share), 0.0)


def _stranded(free: Any, host: tuple[Any, Any], mix: Mix, most: _Most) -> Any:
    """Return for how many of the free cards of a node its CPU or memory does not suffice."""
    return most(most(free - host[0] / mix.cpu, free - host[1] / mix.memory), 0.0)
