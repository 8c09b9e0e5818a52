"""The cards of one node while a pod is tried on it, container after container: plain numbers instead of columns.

The tests are those of `allocation.placement.fit`, which evaluates all nodes at once and gives reasons; here only
whether a card fits matters. A test compares both.
"""

from typing import Final

from allocation.constraints import CardKind, Constraints
from allocation.ledger.card_table import CORES, MEMORY, SLOTS, NodeFacts
from allocation.ledger.ledger import Ledger
from allocation.quota import Headroom
from allocation.request import WHOLE_CARD, ContainerRequest

ALL: Final = 1 << 30
"""More cards than a node has."""


class NodeCards:
    """The cards of one node, for one pod.

    Attributes:
        row: the row of the ledger.
        total: capacity by dimension and card.
        used: used amounts by dimension and card, those of the pod's own containers included.
        numa: the NUMA node of each card.
        instances: which cards are MIG instances; None if the node has no card in MIG mode.
        is_uniform: whether all cards have the same capacity.
    """

    __slots__ = (
        "_idle_only",
        "_is_copy",
        "_usable",
        "_whole_mib",
        "instances",
        "is_uniform",
        "numa",
        "row",
        "total",
        "used",
    )

    def __init__(self, ledger: Ledger, row: int, constraints: Constraints) -> None:
        facts = ledger.facts(row)
        self.row = row
        self.total = (facts.memory_mib, facts.cores, facts.slots)
        self.used = ledger.used_lists(row)
        self.numa = facts.numa
        self.instances = facts.instances
        self.is_uniform = facts.is_uniform
        self._is_copy = False
        self._whole_mib = facts.whole_mib
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

    def fitting(self, request: ContainerRequest, headroom: Headroom, *, limit: int = ALL) -> list[int]:
        """Return the positions of the cards that fit a container, at most `limit` of them."""
        used_memory, used_cores, used_slots = self.used
        total_memory, total_cores, total_slots = self.total
        cores, percent = request.cores, request.memory_percent
        memory = request.memory_mib or 0
        idle_only, is_limited = self._idle_only or request.whole, headroom.is_limited
        positions = []
        for card, usable in enumerate(self._usable):
            sharing = used_slots[card]
            if not usable or sharing >= total_slots[card] or (sharing and idle_only):
                continue
            if percent:
                memory = self._whole_mib[card] * percent // 100
            free_cores = total_cores[card] - used_cores[card]
            if total_memory[card] - used_memory[card] < memory or free_cores < cores:
                continue
            if cores == WHOLE_CARD and sharing and total_cores[card] == WHOLE_CARD:
                continue
            if not cores and not free_cores and total_cores[card]:
                continue
            if is_limited and not self._is_within(headroom, card, memory, request):
                continue
            positions.append(card)
            if len(positions) == limit:
                break
        return positions

    def reserve(self, card: int, *, memory_mib: int, cores: int) -> None:
        """Add a container's share of a card to the used amounts; the ledger's own lists stay as they are."""
        if not self._is_copy:
            self.used = [list(amounts) for amounts in self.used]
            self._is_copy = True
        self.used[MEMORY][card] += memory_mib
        self.used[CORES][card] += cores
        self.used[SLOTS][card] += 1

    def _is_within(self, headroom: Headroom, card: int, memory: int, request: ContainerRequest) -> bool:
        """Whether the quota allows the container's cards if all were like this one; an instance is charged whole."""
        cores = request.cores
        if self.instances is not None and self.instances[card]:
            memory, cores = self.total[MEMORY][card], self.total[CORES][card]
        return headroom.allows(memory_mib=memory * request.count, cores=cores * request.count, cards=request.count)


def _of_kind(facts: NodeFacts, kind: CardKind) -> list[bool]:
    """Return which cards are usable and of a kind."""
    wanted = kind == "instance"
    if facts.instances is None and not wanted:
        return facts.usable
    instances = facts.instances if facts.instances is not None else [False] * len(facts.usable)
    return [usable and instance == wanted for usable, instance in zip(facts.usable, instances, strict=True)]
