"""What pods with cards request beside them, and what nodes have of it: by that, a node is chosen so that the next fit.

The mix of requests is that of the pods that have cards now, so a restart begins with the same mix, and no pod counts
for more than it holds. A little of the fleet's own mix is always part of it, which decides in an empty cluster. The mix
is rounded to steps of a tenth, so that it rarely changes: rankings of nodes are computed again when it does.
"""

import math
from collections import Counter
from typing import Final

import msgspec
import numpy as np

from allocation.constraints import Constraints, read_constraints
from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from allocation.ledger.row_table import RowTable
from allocation.placement.stranding import Hosts, Mix, Stranding
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
_STEP: Final = math.log(1.1)
_LEAST_PRICE: Final = 0.01
_UNKNOWN: Final = (2**40, 2**60)
"""The CPU and memory of a node that does not exist yet: nothing is stranded there."""
_NODES: Final = 1_000
"""Nodes whose amounts are added up between two interruptions."""


class _Requested(msgspec.Struct, frozen=True):
    """What a pod requests: millicores and bytes, the millicards of all its cards, and the models that it accepts.

    The models are None if every model will do.
    """

    cpu: int
    memory: int
    cards: int
    models: frozenset[str] | None


class Workload:
    """The pods with cards, and the nodes; see `allocation.placement.stranding.Nodes`."""

    def __init__(self, ledger: Ledger, node_cache: NodeCache, settings: AllocationSettings, *, points: float) -> None:
        """Count a stranded card as `points` of a node's score; 0 disregards stranded cards."""
        self._ledger = ledger
        self._node_cache = node_cache
        self._settings = settings
        self._points = points
        self._free = RowTable(ledger, lambda row: self.free(ledger.node(row)), np.dtype((np.int64, (2,))))
        self._pods: dict[str, _Requested] = {}
        self._sums = [0, 0, 0]
        self._by_models: Counter[frozenset[str]] = Counter()
        self._fleet = [0, 0, 0]
        """Millicores, bytes and millicards of the nodes with cards."""
        self._cards: Counter[str] = Counter()
        """Millicards of the fleet by model."""
        self._mark = -1
        self._mix: Mix | None = None
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
            requested = _Requested(cpu, memory, self._size(placed), self._models(placed.pod))
            self._pods[placed.pod.uid] = requested
            self._add(requested, 1)

    def unreserve(self, uid: str) -> None:
        """Count a pod no more."""
        requested = self._pods.pop(uid, None)
        if requested is not None:
            self._add(requested, -1)

    def _add(self, requested: _Requested, sign: int) -> None:
        amounts = (requested.cpu, requested.memory, requested.cards)
        self._sums = [total + sign * amount for total, amount in zip(self._sums, amounts, strict=True)]
        if requested.models is not None:
            self._by_models[requested.models] += sign * requested.cards
            if not self._by_models[requested.models]:
                del self._by_models[requested.models]
        self._is_current = False

    def _size(self, placed: Placed) -> int:
        """Return the millicards of a pod: of each card its share of memory or compute, whichever is larger."""
        inventory = self._ledger.inventory(placed.node)
        cards = {card.uuid: card for card in inventory.cards} if inventory is not None else {}
        size = 0.0
        for charge in placed.charges:
            card = cards.get(charge.uuid)
            if card is not None:
                size += max(charge.memory_mib / max(card.memory_mib, 1), charge.cores / max(card.cores, 1))
        return round(size * WHOLE_CARD)

    def _models(self, pod: Pod) -> frozenset[str] | None:
        """Return the models that a pod accepts by its annotations; None if every model will do."""
        try:
            constraints = read_constraints(pod.metadata.annotations, self._settings)
        except AllocationError:
            return None  # written after it was placed
        if not constraints.chooses_types:
            return None
        return frozenset(model for model, mode in self._ledger.kind_names if constraints.accepts_type(model, mode))

    # ---- nodes -----------------------------------------------------------------------------------------------------

    @property
    def mix(self) -> Mix | None:
        """See `allocation.placement.stranding.Nodes`."""
        if not self._is_current:
            self._is_current = True
            mix = self._compute()
            if mix != self._mix:
                self._mix = mix
        return self._mix

    def free(self, node: str) -> tuple[int, int]:
        """See `allocation.placement.stranding.Nodes`."""
        has = self._node_cache.allocatable.get(node)
        if has is None:
            return _UNKNOWN
        used = self._node_cache.used.get(node, {})
        return (
            has.get(resources.CPU, 0) - used.get(resources.CPU, 0),
            has.get(resources.MEMORY, 0) - used.get(resources.MEMORY, 0),
        )

    def prepare(self) -> Steps[None]:
        """See `allocation.placement.stranding.Nodes`; the nodes are added up again if others have cards now."""
        yield from self._free.prepare()
        changes, ledger = self._ledger.changes, self._ledger
        if changes.reaches(self._mark):
            self._mark = changes.mark
            return
        mark, fleet, cards = changes.mark, [0, 0, 0], Counter[str]()
        for number, row in enumerate(ledger.order().tolist()):
            if number % _NODES == _NODES - 1:
                yield
                if not changes.reaches(mark):
                    return  # the rows belong to other nodes now
            facts, has = ledger.facts(row), self._node_cache.allocatable.get(ledger.node(row), {})
            fleet[0] += has.get(resources.CPU, 0)
            fleet[1] += has.get(resources.MEMORY, 0)
            for kind, cores in zip(facts.kinds, facts.cores, strict=True):
                fleet[2] += cores
                cards[ledger.kind_names[kind][0]] += cores
        self._mark, self._fleet, self._cards, self._is_current = mark, fleet, cards, False

    def columns(self, ledger: Ledger) -> Hosts:
        """See `allocation.placement.stranding.Nodes`."""
        if ledger is self._ledger:
            return self._free.rows()
        columns = np.zeros((*ledger.fullness.shape, 2), np.int64)
        for row in ledger.order().tolist():
            columns[row] = self.free(ledger.node(row))
        return columns

    def _compute(self) -> Mix | None:
        cpu, memory, cards = self._fleet
        if not cpu or not memory or not cards:
            return None
        requested = self._sums[2] + _OF_FLEET * cards
        per_card = [(self._sums[each] + _OF_FLEET * self._fleet[each]) / requested for each in (0, 1)]
        named: dict[str, float] = {}
        for models, size in self._by_models.items():
            accepted = {model: self._cards[model] for model in models if self._cards[model]}
            for model, supply in accepted.items():
                named[model] = named.get(model, 0.0) + size * supply / sum(accepted.values())
        prices = {model: size / requested / (self._cards[model] / cards) for model, size in sorted(named.items())}
        rounded = {model: _rounded(price) for model, price in prices.items() if price >= _LEAST_PRICE}
        return Mix(_rounded(per_card[0] * WHOLE_CARD), _rounded(per_card[1] * WHOLE_CARD), rounded)


def _rounded(amount: float) -> float:
    """Return the nearest power of 1.1, of a positive amount."""
    return math.exp(round(math.log(amount) / _STEP) * _STEP)
