"""What the allocator shows of its cards and nodes, always as copies, and which cards have to be written to the API."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, Protocol

import msgspec

from allocation.adjustment import Amounts
from allocation.gpuallocator.strategies import CardUse
from allocation.ledger.card_table import CORES, MEMORY, TFLOPS
from allocation.ledger.ledger import Ledger

_MOST_CONFLICTS: Final = 5
_HOST_MEMORY: Final = Fraction(50, 100)
_HOST_DISK: Final = Fraction(70, 100)
_COMPUTE: Final = 5


class Gpu(msgspec.Struct, frozen=True):
    """A card at one moment.

    Attributes:
        name: its UUID.
        node: its node.
        index: its index on the node.
        model: its model.
        healthy: whether new pods may use it.
        capacity: all that it has.
        available: what neither allocated nor assumed pods have of it.
        running: the UIDs of the pods that have a part of it, sorted.
    """

    name: str
    node: str
    index: int
    model: str
    healthy: bool
    capacity: Amounts
    available: Amounts
    running: tuple[str, ...]

    @property
    def use(self) -> CardUse:
        """The card as a strategy sees it."""
        return CardUse(self.name, self.node, self.capacity, self.capacity - self.available)


class NodeCapacity(msgspec.Struct, frozen=True):
    """The sums over the physical cards of a node.

    Attributes:
        total: capacity.
        available: what no pod has.
        virtual: the capacity with oversubscription: memory with 50 % more in the host's memory and 70 % more on its
            disk, compute five times. Requests are never placed beyond the physical capacity.
        virtual_available: what of it the limits of the pods leave.
        pods: how many pods have cards of the node.
        models: the models of its cards, sorted.
    """

    total: Amounts
    available: Amounts
    virtual: Amounts
    virtual_available: Amounts
    pods: int
    models: tuple[str, ...]


def gpus_of(ledger: Ledger, node: str) -> dict[str, Gpu]:
    """Return the cards of a node by their names, in the order of their indexes."""
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return {}
    holders: dict[str, list[str]] = {}
    for each in ledger.reservations(node):
        for charge in each.charges:
            holders.setdefault(charge.uuid, []).append(each.uid)
    found = {}
    for position, card in enumerate(inventory.cards):
        free = ledger.free(row, position)
        found[card.uuid] = Gpu(
            card.uuid,
            node,
            card.index,
            card.model,
            card.healthy,
            Amounts(card.memory_mib, card.cores, card.tflops * card.cores),
            Amounts(free[MEMORY], free[CORES], free[TFLOPS]),
            tuple(sorted(holders.get(card.uuid, ()))),
        )
    return found


def capacity_of(ledger: Ledger, node: str, limits: Amounts) -> NodeCapacity | None:
    """Return the sums of a node, of whose cards pods may use `limits`; None if it has no cards."""
    inventory = ledger.inventory(node)
    physical = {card.uuid for card in inventory.cards if card.instance is None} if inventory is not None else set()
    gpus = [gpu for name, gpu in gpus_of(ledger, node).items() if name in physical]
    if not gpus:
        return None
    total = sum((gpu.capacity for gpu in gpus), Amounts())
    memory = int(total.memory_mib * (1 + _HOST_MEMORY + _HOST_DISK))
    virtual = Amounts(memory, total.cores * _COMPUTE, total.tflops * _COMPUTE)
    return NodeCapacity(
        total,
        sum((gpu.available for gpu in gpus), Amounts()),
        virtual,
        virtual - limits,
        sum(each.is_pod for each in ledger.reservations(node)),
        tuple(sorted({gpu.model for gpu in gpus})),
    )


class SinkError(Exception):
    """The API did not take the status of a card."""


class SinkConflictError(SinkError):
    """Another client has written the object meanwhile."""


class SinkNotFoundError(SinkError):
    """There is no such object any more."""


class StatusSink(Protocol):
    """Where the status of cards is written; raises one of the errors above."""

    def write(self, gpu: Gpu) -> None:
        """Write what a card has available and which pods run on it."""


class DirtyCards:
    """The cards whose status has to be written."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def mark(self, names: Iterable[str]) -> None:
        """Note that the status of cards has changed."""
        self._names.update(names)

    def sync(self, sink: StatusSink, read: Callable[[str], Gpu | None]) -> int:
        """Write the status of each card, as `read` returns it at that moment, and return how many were written.

        After a conflict the card is read and written again; one that could not be written stays to be written, and one
        that is gone does not.
        """
        names, self._names = sorted(self._names), set()
        return sum(self._write(name, sink, read) for name in names)

    def _write(self, name: str, sink: StatusSink, read: Callable[[str], Gpu | None]) -> bool:
        for _ in range(_MOST_CONFLICTS):
            gpu = read(name)
            if gpu is None:
                return False
            try:
                sink.write(gpu)
            except SinkConflictError:
                continue
            except SinkNotFoundError:
                return False
            except SinkError:
                break
            else:
                return True
        self._names.add(name)
        return False
