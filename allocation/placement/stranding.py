"""What a pod costs those that come after it, in cards: what it strands, takes from others, or breaks up.

A node strands cards that are free while its CPU or memory does not suffice for as many: no pod of the usual mix can
have them. A pod that requests much CPU strands cards where they are free, and none where they are in use. A model of
cards is dear if many pods accept no other. And of a card that a pod shares, those that come after it have the rest
(`allocation.placement.card_rest`). docs/packing.md has what this is worth on a production trace.

What is left of nodes is read from `allocation.placement.host`. The cost is computed for all nodes at once and for one
node; a test compares both to the last bit.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.placement import card_rest, score
from allocation.placement.host import PARTS, Host, Hosts, Mix, free_of, stranded_of
from allocation.request import ContainerRequest
from allocation.steps import Steps


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
        """Compute, in steps, whatever would make `hosts` slow."""

    def hosts(self, ledger: Ledger) -> Hosts:
        """Return what is left of the node of each row of a ledger; of a row that is not in use, anything.

        Only while there is a mix. The array belongs to the nodes.
        """


class Left(NamedTuple):
    """What a pod leaves of a node, in cards.

    Attributes:
        stranded: free cards without CPU or memory.
        rest: what is free of the card that it shares.
        missing: what it takes from pods that accept no other model.
    """

    stranded: float
    rest: float
    missing: float

    def __str__(self) -> str:
        """Return it in words; what is nothing is left out, but for stranded cards."""
        words = [f"leaves {self.stranded:.1f} free cards there without CPU or memory"]
        if self.rest:
            words.append(f"leaves {self.rest:.2f} of the card that it shares")
        if self.missing:
            words.append(f"takes {self.missing:.2f} cards from pods that accept no other model")
        return ", ".join(words)


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
        every = 2 * len(rows) >= len(ledger.fullness)  # a copy of some columns takes longer than computing all
        part = slice(None) if every else rows
        hosts = self._nodes.hosts(ledger)[:, part]
        memory_mib, cores, mean_mib, used_mib, used_cores, _, _, by_cpu, by_memory, before, stranded, price = hosts[
            :PARTS
        ]
        by_cpu, by_memory = by_cpu - self._cpu / mix.cpu, by_memory - self._memory / mix.memory
        if not containers:
            costs = stranded_of(before, by_cpu, by_memory, np.maximum) - stranded
        else:
            more_mib, more_cores = score.requested_of_rows(ledger, containers)
            more_mib, more_cores = more_mib[part], more_cores[part]
            after = free_of(memory_mib, cores, used_mib + more_mib, used_cores + more_cores, np.maximum)
            costs = stranded_of(after, by_cpu, by_memory, np.maximum) - stranded
            if mix.prices:
                costs += price * (before - after)
            if card_rest.shares_card(containers):
                sizes = card_rest.size(more_mib, mean_mib, more_cores, np.maximum)
                costs += card_rest.of_rows(hosts[PARTS:], sizes, fullest=self._fills_cards)
        points: NDArray[np.float64] = self._points * costs
        return points[rows] if every else points

    def of_row(self, ledger: Ledger, row: int, containers: Sequence[ContainerRequest]) -> float:
        """Return what the pod costs on the node of a row in use, in points."""
        mix = self._nodes.mix
        if mix is None:
            return 0.0
        host = self._nodes.host(row)
        memory_mib, cores, mean_mib, used_mib, used_cores, _, _, by_cpu, by_memory, before, stranded, price, parts = (
            host
        )
        more_mib, more_cores, _ = score.requested(ledger.facts(row), containers)
        free = free_of(memory_mib, cores, used_mib + more_mib, used_cores + more_cores, max)
        cost = stranded_of(free, by_cpu - self._cpu / mix.cpu, by_memory - self._memory / mix.memory, max) - stranded
        if mix.prices:
            cost += price * (before - free)
        if card_rest.shares_card(containers):
            size = card_rest.size(more_mib, mean_mib, more_cores, max)
            cost += card_rest.of_row(parts, size, fullest=self._fills_cards)
        points: float = self._points * cost
        return points

    def left(self, ledger: Ledger, node: str, containers: Sequence[ContainerRequest]) -> Left:
        """Return what the pod leaves of a node."""
        mix, row = self._nodes.mix, ledger.row(node)
        if mix is None or row is None:
            return Left(0.0, 0.0, 0.0)
        host, (mib, cores, _) = self._nodes.host(row), score.requested(ledger.facts(row), containers)
        free = free_of(host.memory_mib, host.cores, host.used_mib + mib, host.used_cores + cores, max)
        by_cpu, by_memory = host.by_cpu - self._cpu / mix.cpu, host.by_memory - self._memory / mix.memory
        rest = 0.0
        if card_rest.shares_card(containers):
            size = card_rest.size(mib, host.mean_mib, cores, max)
            rest = card_rest.of_row(host.parts, size, fullest=self._fills_cards)
        return Left(stranded_of(free, by_cpu, by_memory, max), rest, host.price * (host.free - free))
