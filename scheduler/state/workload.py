"""What pods with cards request beside them, and what nodes have of it: by that, a node is chosen so that the next fit.

The mix of requests is that of the pods that have cards now, so a restart begins with the same mix, and no pod counts
for more than it holds. A little of the fleet's own mix is always part of it, which decides in an empty cluster. The mix
is rounded to steps of a fifth, so that it rarely changes: rankings of nodes are computed again when it does.
"""

import itertools
import math
from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np

from allocation.constraints import Constraints, read_constraints
from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.ledger.row_table import RowTable
from allocation.placement.stranding import Host, Hosts, Mix, Stranding, host_of
from allocation.request import WHOLE_CARD
from allocation.settings import AllocationSettings
from allocation.steps import Steps
from scheduler.filters import resources
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.state.participants import Placed

_OF_FLEET: Final = 0.01
"""The cards of the fleet, as a share of all, that count as if pods had requested them with the CPU and memory of their
nodes."""
_STEP: Final = math.log(1.2)
_LEAST_PRICE: Final = 0.01
_UNKNOWN: Final = (2**40, 2**60)
"""The CPU and memory of a node that does not exist yet: nothing is stranded there."""
_SELECTORS: Final = 64
"""Node selectors whose models are kept; users can write any number."""
_NODES: Final = 1_000
"""Nodes that are read between two interruptions."""

_Steps = tuple[int, int, tuple[tuple[str, int], ...]]
"""CPU and memory per card, and prices by model, as powers of 1.2."""


class _Requested(msgspec.Struct, frozen=True):
    """What a pod requests: millicores and bytes, the millicards of all its cards, and the models that it accepts.

    The models are None if every model will do.
    """

    cpu: int
    memory: int
    cards: int
    models: frozenset[str] | None


class _Has(msgspec.Struct, frozen=True):
    """What a node with cards has: millicores and bytes, and the model and the millicards of each card."""

    cpu: int
    memory: int
    cards: tuple[tuple[str, int], ...]


_NOTHING: Final = _Has(0, 0, ())


class Workload:
    """The pods with cards, and the nodes; see `allocation.placement.stranding.Nodes`."""

    def __init__(self, ledger: Ledger, node_cache: NodeCache, settings: AllocationSettings, *, points: float) -> None:
        """Count a stranded card as `points` of a node's score; 0 disregards stranded cards."""
        self._ledger = ledger
        self._node_cache = node_cache
        self._settings = settings
        self._points = points
        self._free = RowTable(ledger, lambda row: self.free(ledger.node(row)), np.dtype((np.int64, (2,))))
        self._hosts: dict[int, Host] = {}
        self._hosts_mark = -1
        self._hosts_mix: Mix | None = None
        self._pods: dict[str, _Requested] = {}
        self._cpu = self._memory = self._size = 0
        self._by_models: Counter[frozenset[str]] = Counter()
        self._nodes: dict[str, _Has] = {}
        self._touched: set[str] = set()
        self._fleet_cpu = self._fleet_memory = 0
        self._cards: Counter[str] = Counter()
        """Millicards of the fleet by model."""
        self._selected: dict[tuple[tuple[str, str], ...], set[str]] = {}
        """Models by nodeSelector, until a node or its cards change."""
        self._mix: Mix | None = None
        self._mix_steps: _Steps | None = None
        self._is_current = False

    def of(self, pod: Pod, constraints: Constraints) -> Stranding | None:
        """Return what a pod costs others; None if its policy disregards that."""
        if not self._points or constraints.node_policy != "binpack":
            return None
        amounts = self._node_cache.requests(pod)[0]
        cpu, memory = amounts.get(resources.CPU, 0), amounts.get(resources.MEMORY, 0)
        return Stranding(self, cpu=cpu, memory=memory, points=self._points)

    # ---- participant -----------------------------------------------------------------------------------------------

    def reserve(self, placed: Placed) -> None:
        """Count what a pod with cards requests (`scheduler.state.participants.Participant`)."""
        self.unreserve(placed.pod.uid)
        if placed.allocation is not None:
            cpu, memory = self._node_cache.cpu_and_memory(placed.pod.uid)
            requested = _Requested(cpu, memory, self._size_of(placed), self._models(placed.pod))
            self._pods[placed.pod.uid] = requested
            self._add(requested, 1)

    def unreserve(self, uid: str) -> None:
        """Count a pod no more."""
        requested = self._pods.pop(uid, None)
        if requested is not None:
            self._add(requested, -1)

    def _add(self, requested: _Requested, sign: int) -> None:
        self._cpu += sign * requested.cpu
        self._memory += sign * requested.memory
        self._size += sign * requested.cards
        if requested.models is not None:
            self._by_models[requested.models] += sign * requested.cards
            if not self._by_models[requested.models]:
                del self._by_models[requested.models]
        self._is_current = False

    def _size_of(self, placed: Placed) -> int:
        """Return the millicards of a pod: of each card its share of memory or compute, whichever is larger."""
        size = 0.0
        for charge in placed.charges:
            found = self._ledger.position(charge.uuid)
            if found is not None:
                facts, position = self._ledger.facts(found[0]), found[1]
                memory, cores = facts.memory_mib[position], facts.cores[position]
                size += max(charge.memory_mib / max(memory, 1), charge.cores / max(cores, 1))
        return round(size * WHOLE_CARD)

    def _models(self, pod: Pod) -> frozenset[str] | None:
        """Return the models that a pod accepts by annotations and nodeSelector; None if every model will do."""
        selector, kinds = pod.spec.node_selector, self._ledger.kind_names
        try:
            constraints = read_constraints(pod.metadata.annotations, self._settings)
        except AllocationError:
            return None  # written after it was placed
        if not constraints.chooses_types and not selector:
            return None
        accepted = {model for model, mode in kinds if constraints.accepts_type(model, mode)}
        if selector:
            accepted &= self._models_of(tuple(sorted(selector.items())))
        return None if accepted == {model for model, _ in kinds} else frozenset(accepted)

    def _models_of(self, selector: tuple[tuple[str, str], ...]) -> set[str]:
        """Return the models on nodes with these labels."""
        found = self._selected.get(selector)
        if found is None:
            if len(self._selected) >= _SELECTORS:
                self._selected.clear()
            ledger, wanted = self._ledger, dict(selector).items()
            named = (name for name, node in self._node_cache.nodes.items() if wanted <= node.metadata.labels.items())
            rows = (row for name in named if (row := ledger.row(name)) is not None)
            kinds = {tuple(ledger.facts(row).kinds) for row in rows}  # nearly all nodes have the same as many others
            found = self._selected[selector] = {ledger.kind_names[kind][0] for each in kinds for kind in each}
        return found

    # ---- nodes -----------------------------------------------------------------------------------------------------

    @property
    def mix(self) -> Mix | None:
        """See `allocation.placement.stranding.Nodes`."""
        if not self._is_current:
            self._is_current = True
            steps = self._steps()
            if steps != self._mix_steps:
                self._mix_steps, self._mix = steps, _mix(steps)
        return self._mix

    def host(self, row: int) -> Host:
        """See `allocation.placement.stranding.Nodes`."""
        changes, mix = self._ledger.changes, self._mix
        if changes.mark != self._hosts_mark or mix is not self._hosts_mix:
            changed = changes.since(self._hosts_mark)
            if changed is None or mix is not self._hosts_mix:
                self._hosts.clear()
            else:
                for entry in changed:
                    self._hosts.pop(entry if entry >= 0 else ~entry, None)
            self._hosts_mark, self._hosts_mix = changes.mark, mix
        host = self._hosts.get(row)
        if host is None:
            if mix is None:
                raise ValueError("nothing is known of the nodes yet")
            cpu, memory = self.free(self._ledger.node(row))
            host = self._hosts[row] = host_of(self._ledger, row, mix, cpu=cpu, memory=memory)
        return host

    def free(self, node: str, *, without: Collection[str] = ()) -> tuple[int, int]:
        """Return the free millicores and bytes of a node without the pods of some UIDs."""
        has = self._node_cache.allocatable.get(node)
        if has is None:
            return _UNKNOWN
        used = self._node_cache.used_on(node, without=without)
        return (
            has.get(resources.CPU, 0) - used.get(resources.CPU, 0),
            has.get(resources.MEMORY, 0) - used.get(resources.MEMORY, 0),
        )

    @property
    def is_prepared(self) -> bool:
        """See `allocation.placement.stranding.Nodes`."""
        return not self._touched

    def touch(self, node: str) -> None:
        """Note that a node or its cards changed: the node is read again."""
        self._touched.add(node)

    def prepare(self) -> Steps[None]:
        """See `allocation.placement.stranding.Nodes`; the nodes that changed are read again."""
        yield from self._free.prepare()
        for number in itertools.count(1):
            if not self._touched:
                return
            self._read(self._touched.pop())
            if number % _NODES == 0:
                yield

    def _read(self, node: str) -> None:
        """Count what a node has now."""
        old, new = self._nodes.pop(node, _NOTHING), self._has(node)
        if new != _NOTHING:
            self._nodes[node] = new
        self._fleet_cpu += new.cpu - old.cpu
        self._fleet_memory += new.memory - old.memory
        for has, sign in ((new, 1), (old, -1)):
            for model, cores in has.cards:
                self._cards[model] += sign * cores
        self._selected.clear()
        self._is_current = False

    def _has(self, node: str) -> _Has:
        row = self._ledger.row(node)
        if row is None:
            return _NOTHING
        facts, has = self._ledger.facts(row), self._node_cache.allocatable.get(node, {})
        names = (self._ledger.kind_names[kind][0] for kind in facts.kinds)
        cards = tuple(zip(names, facts.cores, strict=True))
        return _Has(has.get(resources.CPU, 0), has.get(resources.MEMORY, 0), cards)

    def columns(self, ledger: Ledger) -> Hosts:
        """See `allocation.placement.stranding.Nodes`."""
        if ledger is self._ledger:
            return self._free.rows()
        columns = np.zeros((*ledger.fullness.shape, 2), np.int64)
        absent = ledger.absent if isinstance(ledger, LedgerCopy) else ()
        for row in ledger.order().tolist():
            columns[row] = self.free(ledger.node(row), without=absent)
        return columns

    def _steps(self) -> _Steps | None:
        """Return the mix in steps."""
        cpu, memory, cards = self._fleet_cpu, self._fleet_memory, self._cards.total()
        if not cpu or not memory or not cards:
            return None
        requested = (self._size + _OF_FLEET * cards) / WHOLE_CARD
        by_model = self._named(requested * WHOLE_CARD / cards) if self._by_models else ()
        return (
            _step((self._cpu + _OF_FLEET * cpu) / requested),
            _step((self._memory + _OF_FLEET * memory) / requested),
            by_model,
        )

    def _named(self, load: float) -> tuple[tuple[str, int], ...]:
        """Return the price of each model that pods name, in steps; `load` is what is requested by what there is."""
        named: dict[str, float] = {}
        for models, size in self._by_models.items():
            accepted = {model: self._cards[model] for model in models if self._cards[model]}
            for model, supply in accepted.items():
                named[model] = named.get(model, 0.0) + size * supply / sum(accepted.values())
        prices = {model: size / self._cards[model] / load for model, size in named.items()}
        return tuple((model, _step(price)) for model, price in sorted(prices.items()) if price >= _LEAST_PRICE)


def _step(amount: float) -> int:
    """Return the power of 1.2 that is nearest to a positive amount."""
    return round(math.log(amount) / _STEP)


def _mix(steps: _Steps | None) -> Mix | None:
    if steps is None:
        return None
    cpu, memory, by_model = steps
    return Mix(math.exp(cpu * _STEP), math.exp(memory * _STEP), {name: math.exp(n * _STEP) for name, n in by_model})
