"""What a pod costs those that come after it, in cards: what it strands, takes from others, or breaks up.

A node strands cards that are free while its CPU or memory does not suffice for as many: no pod of the usual mix can
have them. A pod that requests much CPU strands cards where they are free, and none where they are in use. A model of
cards is dear if many pods accept no other. And of a card that a pod shares, those that come after it have the rest
(`allocation.placement.card_rest`). docs/packing.md has what this is worth on a production trace.

The formulas are evaluated for all nodes at once and for one node; a test compares both to the last bit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import MEMORY, SLOTS
from allocation.ledger.ledger import Ledger
from allocation.placement import card_rest, score
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
            share of all cards and by the free part of them, at most 1; models without such requests are left out.
    """

    cpu: float
    memory: float
    prices: Mapping[str, float] = {}


class Host(NamedTuple):
    """What is left of a node, before a pod comes: computed once for all pods, as long as nothing changes there.

    Attributes:
        memory_mib: device memory of all cards.
        cores: millicards of all cards.
        used_mib: device memory in use.
        used_cores: millicards in use.
        by_cpu: the cards for which the free CPU suffices.
        by_memory: the cards for which the free memory suffices.
        free: free cards.
        stranded: those of them that are stranded.
        price: of each card.
        parts: the free part of each card (`allocation.placement.card_rest`).
    """

    memory_mib: int
    cores: int
    used_mib: int
    used_cores: int
    by_cpu: float
    by_memory: float
    free: float
    stranded: float
    price: float
    parts: Sequence[int]


class Nodes(Protocol):
    """What nodes have beside cards, and what pods request of it. Changes are in `Ledger.changes`."""

    @property
    def mix(self) -> Mix | None:
        """What pods request; another object once that has changed noticeably. None while no node has cards."""

    @property
    def is_prepared(self) -> bool:
        """Whether the mix is that of the nodes as they are now; otherwise `prepare` reads them."""

    def host(self, row: int) -> Host:
        """Return what is left of the node of a row in use; only while there is a mix."""

    def prepare(self) -> Steps[None]:
        """Compute, in steps, whatever would make `columns` slow."""

    def columns(self, ledger: Ledger) -> Hosts:
        """Return what is free on the node of each row of a ledger; of a row that is not in use, anything."""

    def parts(self, ledger: Ledger) -> card_rest.Parts:
        """Return the free part of each card of a ledger; of a row that is not in use, anything."""


def host_of(ledger: Ledger, row: int, mix: Mix, *, cpu: int, memory: int) -> Host:
    """Return what is left of the node of a row, which has these free millicores and bytes."""
    facts, (used_mib, used_cores, _) = ledger.facts(row), ledger.used_sums(row)
    memory_mib, cores, _ = facts.capacity
    by_cpu, by_memory = cpu / mix.cpu, memory / mix.memory
    free = _free(memory_mib, cores, used_mib, used_cores, max)
    stranded = _stranded(free, by_cpu, by_memory, max)
    price = mix.prices.get(ledger.kind_names[facts.kinds[0]][0], 0.0) if facts.kinds and mix.prices else 0.0
    parts = card_rest.parts_of(ledger, row)
    return Host(memory_mib, cores, used_mib, used_cores, by_cpu, by_memory, free, stranded, price, parts)


class Stranding:
    """What pods cost that request the same CPU and memory; the containers that request cards are given each time."""

    def __init__(self, nodes: Nodes, *, cpu: int, memory: int, points: float, fills_cards: bool = True) -> None:
        """Count a card as `points` of a node's score; CPU in millicores, memory in bytes.

        `fills_cards` says whether the pod gets the fullest of the cards that fit, or else the emptiest.
        """
        self._nodes = nodes
        self._cpu = cpu
        self._memory = memory
        self._points = points
        self._fills_cards = fills_cards

    @property
    def mix(self) -> Mix | None:
        """See Nodes."""
        return self._nodes.mix

    @property
    def is_prepared(self) -> bool:
        """See Nodes."""
        return self._nodes.is_prepared

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
        hosts = self._nodes.columns(ledger)[rows]
        (memory_mib, cores, _), (used_mib, used_cores) = (
            ledger.capacity[:, rows],
            ledger.used[:SLOTS].sum(axis=2)[:, rows],
        )
        by_cpu, by_memory = hosts[:, 0] / mix.cpu, hosts[:, 1] / mix.memory
        more_mib, more_cores = score.requested_of_rows(ledger, containers)
        before = _free(memory_mib, cores, used_mib, used_cores, np.maximum)
        after = _free(memory_mib, cores, used_mib + more_mib[rows], used_cores + more_cores, np.maximum)
        costs = _stranded(after, by_cpu - self._cpu / mix.cpu, by_memory - self._memory / mix.memory, np.maximum)
        costs -= _stranded(before, by_cpu, by_memory, np.maximum)
        if mix.prices:
            prices = np.array([mix.prices.get(model, 0.0) for model, _ in ledger.kind_names])
            costs += prices[ledger.kinds[rows, 0]] * (before - after)
        if card_rest.shares_card(containers):
            sizes = card_rest.size(more_mib, _mean_mib(ledger), more_cores, np.maximum)[rows]
            costs += card_rest.of_rows(self._nodes.parts(ledger)[rows], sizes, fullest=self._fills_cards)
        points: NDArray[np.float64] = self._points * costs
        return points

    def of_row(self, ledger: Ledger, row: int, containers: Sequence[ContainerRequest]) -> float:
        """Return what the pod costs on the node of a row in use, in points."""
        mix = self._nodes.mix
        if mix is None:
            return 0.0
        memory_mib, cores, used_mib, used_cores, by_cpu, by_memory, before, stranded, price, parts = self._nodes.host(
            row
        )
        more_mib, more_cores, _ = score.requested(ledger.facts(row), containers)
        free = _free(memory_mib, cores, used_mib + more_mib, used_cores + more_cores, max)
        cost = _stranded(free, by_cpu - self._cpu / mix.cpu, by_memory - self._memory / mix.memory, max) - stranded
        if mix.prices:
            cost += price * (before - free)
        if card_rest.shares_card(containers):
            size = card_rest.size(more_mib, ledger.facts(row).mean_mib, more_cores, max)
            cost += card_rest.of_row(parts, size, fullest=self._fills_cards)
        points: float = self._points * cost
        return points

    def left(self, ledger: Ledger, node: str, containers: Sequence[ContainerRequest]) -> float:
        """Return how many cards are stranded on a node with the pod."""
        mix, row = self._nodes.mix, ledger.row(node)
        if mix is None or row is None:
            return 0.0
        host, (mib, cores, _) = self._nodes.host(row), score.requested(ledger.facts(row), containers)
        free = _free(host.memory_mib, host.cores, host.used_mib + mib, host.used_cores + cores, max)
        by_cpu, by_memory = host.by_cpu - self._cpu / mix.cpu, host.by_memory - self._memory / mix.memory
        stranded: float = _stranded(free, by_cpu, by_memory, max)
        return stranded


def _mean_mib(ledger: Ledger) -> NDArray[np.int64]:
    """Return the memory of each node's mean card, in MiB."""
    means: NDArray[np.int64] = ledger.capacity[MEMORY] // np.maximum((ledger.total[SLOTS] > 0).sum(axis=1), 1)
    return means


def _free(memory_mib: Any, cores: Any, used_mib: Any, used_cores: Any, most: _Most) -> Any:
    """Return the free cards of a node, by the scarcer of device memory and compute."""
    share = most(used_mib / most(memory_mib, 1), used_cores / most(cores, 1))
    return most(cores / WHOLE_CARD * (1.0 - share), 0.0)


def _stranded(free: Any, by_cpu: Any, by_memory: Any, most: _Most) -> Any:
    """Return for how many of the free cards of a node its CPU or memory does not suffice."""
    return most(most(free - by_cpu, free - by_memory), 0.0)
