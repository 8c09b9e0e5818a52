"""The cards of one node while a pod is tried on it, container after container: plain numbers instead of columns.

The tests are those of `allocation.placement.fit`, which evaluates all nodes at once and gives reasons; here only
whether a card fits matters. A test compares both.
"""

from typing import Final

from allocation.constraints import CardKind, Constraints
from allocation.ledger.card_table import CORES, MEMORY, SLOTS, TFLOPS, NodeFacts
from allocation.ledger.isolation_locks import IDLE
from allocation.ledger.ledger import Ledger
from allocation.quota import Headroom
from allocation.request import WHOLE_CARD, ContainerRequest

ALL: Final = 1 << 30
"""More cards than a node has."""


class NodeCards:
    """The cards of one node, for one pod.

    Attributes:
        row: the row of the ledger.
        facts: their properties.
        used: used amounts by dimension and card, those of the pod's own containers included.
        counts_tflops: whether fewer TFLOPs than cores may be free (`fit.Cards`).
    """

    __slots__ = ("_idle_only", "_is_copy", "_usable", "counts_tflops", "facts", "row", "used")

    def __init__(self, ledger: Ledger, row: int, constraints: Constraints, isolation: str) -> None:
        self.row = row
        self.facts = facts = ledger.facts(row)
        self.used = ledger.used_lists(row)
        self.counts_tflops = ledger.tflops_holders > 0
        self._is_copy = False
        self._usable = facts.usable
        if constraints.card_kind != "any":
            self._usable = _of_kind(facts, constraints.card_kind)
        self._idle_only = constraints.idle_only
        if constraints.chooses_types or constraints.chooses_uuids:
            inventory = ledger.inventory(ledger.node(row))
            self._usable = [
                usable
                and constraints.accepts_type(*ledger.kind_names[kind])
                and constraints.accepts_uuid(card.uuid, card.parent)
                for usable, kind, card in zip(
                    self._usable, facts.kinds, inventory.cards if inventory is not None else (), strict=True
                )
            ]
        if ledger.has_rules:
            self._usable = _allowed(ledger, row, self._usable, isolation)

    def fitting(self, request: ContainerRequest, headroom: Headroom, *, limit: int = ALL) -> list[int]:
        """Return the positions of the cards that fit a container, at most `limit` of them."""
        used_memory, used_cores, used_slots, _ = self.used
        total_memory, total_cores, total_slots, _ = self.facts.total
        memory, percent, cores, tflops = request.memory_mib or 0, request.memory_percent, request.cores, request.tflops
        needs_compute, counts_tflops, facts = cores or tflops, self.counts_tflops or tflops, self.facts
        idle_only, is_limited = self._idle_only or request.whole, headroom.is_limited
        positions = []
        for card, usable in enumerate(self._usable):
            sharing = used_slots[card]
            if not usable or sharing >= total_slots[card] or (sharing and idle_only):
                continue
            memory = facts.whole_mib[card] * percent // 100 if percent else memory
            cores = tflops // (facts.rates[card] or 1) if tflops else cores
            free_cores = total_cores[card] - used_cores[card]
            if total_memory[card] - used_memory[card] < memory or free_cores < cores:
                continue
            if counts_tflops and not self._has_tflops(card, tflops, cores):
                continue
            if cores == WHOLE_CARD and sharing and total_cores[card] == WHOLE_CARD:
                continue
            if not needs_compute and not free_cores and total_cores[card]:
                continue
            if is_limited and not self._is_within(headroom, card, memory, cores, request):
                continue
            positions.append(card)
            if len(positions) == limit:
                break
        return positions

    def reserve(self, card: int, *, memory_mib: int, cores: int, tflops: int) -> None:
        """Add a container's share of a card to the used amounts; the ledger's own lists stay as they are."""
        if not self._is_copy:
            self.used = [list(amounts) for amounts in self.used]
            self._is_copy = True
        self.used[MEMORY][card] += memory_mib
        self.used[CORES][card] += cores
        self.used[SLOTS][card] += 1
        self.used[TFLOPS][card] += tflops
        self.counts_tflops = self.counts_tflops or tflops != self.facts.rates[card] * cores

    def _has_tflops(self, card: int, tflops: int, cores: int) -> bool:
        """Whether `tflops` are free, or what `cores` are of them, and no more than a whole card has are requested."""
        free, rate = self.facts.total[TFLOPS][card] - self.used[TFLOPS][card], self.facts.rates[card]
        return free >= (tflops or rate * cores) and tflops <= rate * WHOLE_CARD

    def _is_within(self, headroom: Headroom, card: int, memory: int, cores: int, request: ContainerRequest) -> bool:
        """Whether the quota allows the container's cards if all were like this one; an instance is charged whole."""
        facts, tflops, count = self.facts, request.tflops or self.facts.rates[card] * cores, request.count
        if facts.instances is not None and facts.instances[card]:
            memory, cores, _, tflops = (amounts[card] for amounts in facts.total)
        return headroom.allows(memory_mib=memory * count, cores=cores * count, tflops=tflops * count, cards=count)


def _allowed(ledger: Ledger, row: int, usable: list[bool], isolation: str) -> list[bool]:
    """Return which of the usable cards rules leave to a pod of an isolation; of a full node they leave no card."""
    if ledger.is_full(row):
        return [False] * len(usable)
    if not ledger.rules.locks_isolation:
        return usable
    locks, own = ledger.isolation.of_row(row), ledger.isolation.code(isolation)
    if locks.count(IDLE) + locks.count(own) == len(locks):
        return usable
    instances = ledger.facts(row).instances or [False] * len(usable)
    return [
        each and (not lock or lock == own or instance)
        for each, lock, instance in zip(usable, locks, instances, strict=False)
    ]


def _of_kind(facts: NodeFacts, kind: CardKind) -> list[bool]:
    """Return which cards are usable and of a kind."""
    wanted = kind == "instance"
    if facts.instances is None and not wanted:
        return facts.usable
    instances = facts.instances if facts.instances is not None else [False] * len(facts.usable)
    return [usable and instance == wanted for usable, instance in zip(facts.usable, instances, strict=True)]
