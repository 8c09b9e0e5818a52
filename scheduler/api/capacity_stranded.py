"""What is free and of no use to any pod, and whose pods use up what is missing.

A card strands its free memory if its compute is used up, its free compute if its memory is, and both if all slots are
taken: whatever a pod requests of a card, it takes a slot, some memory, and needs a card with compute left. All that is
free is stranded on the cards of a node that has as many pods with cards as it may have. Cards for which the CPU or
memory of their node does not suffice are those that scheduling counts when it chooses a node
(`allocation.placement.stranding`).
"""

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from typing import Final

import msgspec
import numpy as np

from allocation.ledger.card_table import CORES, MEMORY
from allocation.steps import Steps
from scheduler.api.capacity_types import Blame, Obstacle, Stranded
from scheduler.state.cluster_state import ClusterState

_LEAST: Final = 0.05
"""Of less than this many cards of a node it is not said that they lack CPU or memory: the numbers are estimates."""
_OBSTACLES: Final[tuple[Obstacle, ...]] = ("compute", "memory", "slots", "pods", "node")
_NODES: Final = 100
"""Nodes that are read in one step."""
_KEPT: Final = "reserved"
"""Stands for what no pod has: Leases, and devices of other DRA drivers."""


class _Sum(msgspec.Struct):
    cards: float = 0.0
    memory_mib: int = 0
    cores: int = 0


class _Count:
    """The sums by what is missing and by queue."""

    def __init__(self) -> None:
        self._sums: defaultdict[Obstacle, defaultdict[str, _Sum]] = defaultdict(lambda: defaultdict(_Sum))

    def add(self, lacks: Obstacle, queue: str, cards: float, memory_mib: int = 0, cores: int = 0) -> None:
        found = self._sums[lacks][queue]
        found.cards += cards
        found.memory_mib += memory_mib
        found.cores += cores

    def result(self) -> tuple[Stranded, ...]:
        return tuple(_stranded(lacks, self._sums[lacks]) for lacks in _OBSTACLES if lacks in self._sums)


def stranded(state: ClusterState) -> Steps[tuple[Stranded, ...]]:
    """Return what is stranded on the cards and nodes that take pods now."""
    found, closed = _Count(), state.closed_nodes.now()
    yield from _of_cards(state, closed, found)
    yield from _of_nodes(state, closed, found)
    return found.result()


def _of_cards(state: ClusterState, closed: Container[str], found: _Count) -> Steps[None]:
    """Count the cards of the nodes that have such cards in the first step, as they are when each is read."""
    ledger = state.ledger
    is_free = ledger.total > ledger.used
    is_of_use = is_free.all(axis=0)
    if ledger.rules.most_pods is not None:
        is_of_use &= (ledger.pods < ledger.rules.most_pods)[:, np.newaxis]
    is_stranded = ledger.present & (is_free[MEMORY] | is_free[CORES]) & ~is_of_use
    names = ledger.names(np.flatnonzero(is_stranded.any(axis=1)))
    for number, node in enumerate(names, start=1):
        if number % _NODES == 0:
            yield
        row = ledger.row(node)
        if row is None or node in closed:
            continue
        facts, is_full = ledger.facts(row), ledger.is_full(row)
        for card, is_usable in enumerate(facts.usable):
            memory_mib, cores, slots, _ = ledger.free(row, card)
            is_instance = facts.instances is not None and facts.instances[card]
            lacks = _lacking(memory_mib, cores, slots, is_full=is_full)
            if lacks is None or not is_usable or is_instance or max(memory_mib, cores) <= 0:
                continue
            found.add(lacks, _holder(state, node, card, lacks), 1, max(memory_mib, 0), max(cores, 0))


def _lacking(memory_mib: int, cores: int, slots: int, *, is_full: bool) -> Obstacle | None:
    """Return what keeps pods from a card with these amounts free; None if nothing does."""
    if cores <= 0:
        return "compute"
    if memory_mib <= 0:
        return "memory"
    if slots <= 0:
        return "slots"
    return "pods" if is_full else None


def _holder(state: ClusterState, node: str, card: int, lacks: Obstacle) -> str:
    """Return the queue whose pods hold most of what a card lacks, or of the places of its node."""
    inventory, held = state.ledger.inventory(node), Counter[str]()
    uuid = inventory.cards[card].uuid if inventory is not None else ""
    for reservation in state.ledger.reservations(node):
        if lacks == "pods" and reservation.takes_place:
            held[_queue(state, reservation.uid)] += 1
        for charge in reservation.charges if lacks != "pods" else ():
            if charge.uuid == uuid:
                amounts = {"compute": charge.cores, "memory": charge.memory_mib}
                held[_queue(state, reservation.uid)] += amounts.get(lacks, charge.slots)
    return _most(held)


def _of_nodes(state: ClusterState, closed: Container[str], found: _Count) -> Steps[None]:
    workload, ledger = state.workload, state.ledger
    yield from workload.prepare()
    if workload.mix is None:
        return
    for number, node in enumerate(ledger.nodes, start=1):
        if number % _NODES == 0:
            yield
        row = ledger.row(node)
        if row is None or node in closed:
            continue
        cards = workload.host(row).stranded
        if cards >= _LEAST:
            found.add("node", _user(state, node, row), cards)


def _user(state: ClusterState, node: str, row: int) -> str:
    """Return the queue whose pods use most of the CPU or memory of a node, whichever is scarcer for cards."""
    host, used = state.workload.host(row), Counter[str]()
    for uid in state.node_cache.pods_of(node):
        used[_queue(state, uid)] += state.node_cache.cpu_and_memory(uid)[0 if host.by_cpu <= host.by_memory else 1]
    return _most(used)


def _queue(state: ClusterState, uid: str) -> str:
    """Return the queue of a pod; what is held for a pod, and a pod that is not ours, count for the namespace."""
    key = state.fair_share.use.owner(uid)
    if key is not None:
        return str(key)
    namespace = state.node_cache.name_of(uid).partition("/")[0]
    return f"namespace/{namespace}" if namespace else _KEPT


def _most(used: Counter[str]) -> str:
    return min(used, key=lambda name: (-used[name], name), default=_KEPT)


def _stranded(lacks: Obstacle, by_queue: Mapping[str, _Sum]) -> Stranded:
    blamed = sorted(by_queue.items(), key=lambda each: (-each[1].cards, each[0]))
    return Stranded(
        lacks=lacks,
        cards=round(sum(each.cards for each in by_queue.values()), 2),
        memory_mib=sum(each.memory_mib for each in by_queue.values()),
        cores=sum(each.cores for each in by_queue.values()),
        by=tuple(Blame(name, round(each.cards, 2), each.memory_mib, each.cores) for name, each in blamed),
    )
