"""The cards of one node while a pod is tried on it, container after container: plain numbers, no columns.

The tests are those of `allocation.fit`, which judges all nodes at once and says why; here only whether counts. A test
holds both to the same answer.
"""

from typing import Final

from allocation.card_table import CORES, MEMORY, SLOTS
from allocation.constraints import Constraints
from allocation.ledger import Ledger
from allocation.quota import Room
from allocation.request import WHOLE_CARD, ContainerRequest

MANY: Final = 1 << 30
"""More cards than a node has."""


class NodeCards:
    """Some node's cards for some pod.

    Attributes:
        total: capacity by dimension and card.
        used: the same of what is taken; what the pod's own containers take is added here.
        numa: the NUMA node of each card.
        instances: which cards are MIG instances; None where none is.
    """

    __slots__ = ("_is_own", "_mutex", "_usable", "_whole_mib", "instances", "numa", "total", "used")

    def __init__(self, ledger: Ledger, row: int, constraints: Constraints) -> None:
        facts = ledger.facts(row)
        self.total = (facts.memory_mib, facts.cores, facts.slots)
        self.used = ledger.taken(row)
        self.numa = facts.numa
        self.instances = facts.instances
        self._is_own = False
        self._whole_mib = facts.whole_mib
        self._usable = facts.usable
        self._mutex = "mutex" in constraints.card_policies
        if constraints.chooses_types or constraints.chooses_uuids:
            inventory = ledger.inventory(ledger.node(row))
            self._usable = [
                usable
                and constraints.accepts_type(*ledger.kind_names[kind])
                and constraints.accepts_uuid(card.uuid, card.parent)
                for usable, kind, card in zip(
                    facts.usable, facts.kinds, inventory.cards if inventory is not None else (), strict=True
                )
            ]

    def fitting(self, request: ContainerRequest, room: Room, *, enough: int = MANY) -> list[int]:
        """Answer the positions of the cards that fit a container, the first ones where `enough` are asked."""
        used_memory, used_cores, used_slots = self.used
        total_memory, total_cores, total_slots = self.total
        cores, percent = request.cores, request.memory_percent
        memory = request.memory_mib or 0
        mutex, is_limited = self._mutex, room.is_limited
        answer = []
        for card, usable in enumerate(self._usable):
            taken = used_slots[card]
            if not usable or taken >= total_slots[card] or (taken and mutex):
                continue
            if percent:
                memory = self._whole_mib[card] * percent // 100
            free_cores = total_cores[card] - used_cores[card]
            if total_memory[card] - used_memory[card] < memory or free_cores < cores:
                continue
            if cores == WHOLE_CARD and taken and total_cores[card] == WHOLE_CARD:
                continue
            if not cores and not free_cores and total_cores[card]:
                continue
            if is_limited and not self._has_room(card, memory, request, room):
                continue
            answer.append(card)
            if len(answer) == enough:
                break
        return answer

    def take(self, card: int, *, memory_mib: int, cores: int) -> None:
        """Let a container of the pod have a share of a card."""
        if not self._is_own:
            self.used = [list(amounts) for amounts in self.used]
            self._is_own = True
        self.used[MEMORY][card] += memory_mib
        self.used[CORES][card] += cores
        self.used[SLOTS][card] += 1

    def _has_room(self, card: int, memory: int, request: ContainerRequest, room: Room) -> bool:
        """Whether the quota allows the container's cards, were all like this one; an instance is charged whole."""
        cores = request.cores
        if self.instances is not None and self.instances[card]:
            memory, cores = self.total[MEMORY][card], self.total[CORES][card]
        return room.allows(memory_mib=memory * request.count, cores=cores * request.count, cards=request.count)
