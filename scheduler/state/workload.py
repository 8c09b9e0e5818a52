"""What pods with cards request beside them, and what nodes have of it: by that, a node is chosen so that the next fit.

The mix of requests is that of the pods that have cards now, so a restart begins with the same mix, and no pod counts
for more than it holds. A little of the fleet's own mix is always part of it, which decides in an empty cluster. The mix
is rounded to steps of a fifth, and prices to steps of a half, so that they rarely change: rankings of nodes are
computed again when they do.
"""

import itertools
import math
from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np

from allocation.constraints import Constraints
from allocation.ledger.card_table import CORES, MEMORY
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.placement.host import Host, Hosts, Mix, host_of, set_host, shape_of
from allocation.placement.host_table import HostTable
from allocation.placement.stranding import Stranding
from allocation.request import WHOLE_CARD
from allocation.settings import AllocationSettings
from allocation.steps import Steps
from scheduler.filters import resources
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.state.accepted_models import AcceptedModels
from scheduler.state.participants import Placed

_OF_FLEET: Final = 0.01
"""The cards of the fleet, as a share of all, that count as if pods had requested them with the CPU and memory of their
nodes."""
_STEP: Final = math.log(1.2)
_PRICE_STEP: Final = math.log(1.5)
_LEAST_PRICE: Final = 0.01
_LEAST_FREE: Final = 1e-3
"""The free part of the cards of a model counts as so much at least."""
_UNKNOWN: Final = (2**40, 2**60)
"""The CPU and memory of a node that does not exist yet: nothing is stranded there."""
_NODES: Final = 128
"""Nodes that are read between two interruptions."""

_Steps = tuple[int, int, tuple[tuple[str, int], ...]]
"""CPU and memory per card as powers of 1.2, and prices by model as powers of 1.5."""


class _Requested(msgspec.Struct, frozen=True):
    """What a pod requests and has.

    Attributes:
        cpu: millicores.
        memory: bytes.
        cards: the millicards of all its cards.
        of_models: the same by their models.
        accepted: the models that it accepts; None if every model will do.
    """

    cpu: int
    memory: int
    cards: int
    of_models: tuple[tuple[str, int], ...]
    accepted: frozenset[str] | None


class _Has(msgspec.Struct, frozen=True, gc=False):
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
        self._models = AcceptedModels(ledger, node_cache, settings)
        self._points = points
        self._hosts = HostTable(ledger, lambda row: self.free(ledger.node(row)))
        self._pods: dict[str, _Requested] = {}
        self._cpu = self._memory = self._size = 0
        self._by_accepted: Counter[frozenset[str]] = Counter()
        """Requested millicards by the models that will do, of pods that do not accept every model."""
        self._used: Counter[str] = Counter()
        """Millicards in use by model."""
        self._nodes: dict[str, _Has] = {}
        self._touched: set[str] = set()
        self._fleet_cpu = self._fleet_memory = 0
        self._cards: Counter[str] = Counter()
        """Millicards of the fleet by model."""
        self._mix: Mix | None = None
        self._mix_steps: _Steps | None = None
        self._is_current = False

    def of(self, pod: Pod, constraints: Constraints) -> Stranding | None:
        """Return what a pod costs others; None if its policy disregards that."""
        if not self._points or constraints.node_policy != "binpack":
            return None
        amounts = self._node_cache.requests(pod)[0]
        cpu, memory = amounts.get(resources.CPU, 0), amounts.get(resources.MEMORY, 0)
        fills = "binpack" in constraints.card_policies
        return Stranding(self, cpu=cpu, memory=memory, points=self._points, fills_cards=fills)

    # ---- participant -----------------------------------------------------------------------------------------------

    def reserve(self, placed: Placed) -> None:
        """Count what a pod with cards requests (`scheduler.state.participants.Participant`)."""
        self.unreserve(placed.pod.uid)
        if placed.allocation is not None:
            cpu, memory = self._node_cache.cpu_and_memory(placed.pod.uid)
            of_models = self._sizes(placed)
            size = sum(millicards for _, millicards in of_models)
            requested = _Requested(cpu, memory, size, of_models, self._models.of(placed.pod))
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
        for model, millicards in requested.of_models:
            self._used[model] += sign * millicards
            if not self._used[model]:
                del self._used[model]
        if requested.accepted is not None:
            self._by_accepted[requested.accepted] += sign * requested.cards
            if not self._by_accepted[requested.accepted]:
                del self._by_accepted[requested.accepted]
        self._is_current = False

    def _sizes(self, placed: Placed) -> tuple[tuple[str, int], ...]:
        """Return the millicards of a pod by model: of each card its share of memory or compute, if that is larger."""
        sizes = dict[str, float]()
        for charge in placed.charges:
            found = self._ledger.position(charge.uuid)
            if found is not None:
                facts, position = self._ledger.facts(found[0]), found[1]
                memory, cores = facts.total[MEMORY][position], facts.total[CORES][position]
                share = max(charge.memory_mib / max(memory, 1), charge.cores / max(cores, 1))
                model = self._ledger.kind_names[facts.kinds[position]][0]
                sizes[model] = sizes.get(model, 0.0) + share
        return tuple((model, round(size * WHOLE_CARD)) for model, size in sizes.items())

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
        if self._mix is None:
            raise ValueError("nothing is known of the nodes yet")
        return self._hosts.host(row, self._mix)

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
        for number in itertools.count(1):
            if not self._touched:
                break
            self._read(self._touched.pop())
            if number % _NODES == 0:
                yield
        if self.mix is not None:
            yield from self._hosts.prepare(self.mix)

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
        self._models.forget()
        self._is_current = False

    def _has(self, node: str) -> _Has:
        row = self._ledger.row(node)
        if row is None:
            return _NOTHING
        facts, has = self._ledger.facts(row), self._node_cache.allocatable.get(node, {})
        names = (self._ledger.kind_names[kind][0] for kind in facts.kinds)
        cards = tuple(zip(names, facts.total[CORES], strict=True))
        return _Has(has.get(resources.CPU, 0), has.get(resources.MEMORY, 0), cards)

    def hosts(self, ledger: Ledger) -> Hosts:
        """See `allocation.placement.stranding.Nodes`."""
        mix = self.mix
        if mix is None:
            raise ValueError("nothing is known of the nodes yet")
        if ledger is self._ledger:
            return self._hosts.rows(mix)
        hosts = np.zeros(shape_of(ledger))
        absent = ledger.absent if isinstance(ledger, LedgerCopy) else ()
        for row in ledger.order().tolist():
            cpu, memory = self.free(ledger.node(row), without=absent)
            set_host(hosts, row, host_of(ledger, row, mix, cpu=cpu, memory=memory))
        return hosts

    def _steps(self) -> _Steps | None:
        """Return the mix in steps."""
        cpu, memory, cards = self._fleet_cpu, self._fleet_memory, self._cards.total()
        if not cpu or not memory or not cards:
            return None
        requested = (self._size + _OF_FLEET * cards) / WHOLE_CARD
        by_model = self._prices(requested * WHOLE_CARD / cards) if self._by_accepted else ()
        return (
            _step((self._cpu + _OF_FLEET * cpu) / requested),
            _step((self._memory + _OF_FLEET * memory) / requested),
            by_model,
        )

    def _prices(self, load: float) -> tuple[tuple[str, int], ...]:
        """Return the price of each model that pods depend on, in steps; `load` is the requested part of all cards."""
        depend: dict[str, float] = {}
        for models, size in self._by_accepted.items():
            accepted = {model: self._cards[model] for model in models if self._cards[model]}
            for model, supply in accepted.items():
                depend[model] = depend.get(model, 0.0) + size * supply / sum(accepted.values())
        found = []
        for model, millicards in sorted(depend.items()):
            cards = self._cards[model]
            price = millicards / cards / load / max(1.0 - self._used[model] / cards, _LEAST_FREE)
            if price >= _LEAST_PRICE:
                found.append((model, _step(min(price, 1.0), _PRICE_STEP)))
        return tuple(found)


def _step(amount: float, step: float = _STEP) -> int:
    """Return how many steps, as logarithms, are nearest to a positive amount."""
    return round(math.log(amount) / step)


def _mix(steps: _Steps | None) -> Mix | None:
    if steps is None:
        return None
    cpu, memory, by_model = steps
    prices = {model: math.exp(step * _PRICE_STEP) for model, step in by_model}
    return Mix(math.exp(cpu * _STEP), math.exp(memory * _STEP), prices)
