"""Who has what now, as four maps that say the same from four sides: `GET /api/allocation` (systems.md 4.14)."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from allocation.card_table import CORES, MEMORY, SLOTS
from allocation.ledger import Holding, Ledger
from scheduler.explanation_api import Amount, spoken
from scheduler.objects import Pod


class Gpu(msgspec.Struct, frozen=True, rename=spoken):
    """One card, or MIG instance: what it has free, in MiB, millicards and containers."""

    node: str
    index: int
    model: str
    healthy: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount


class Held(msgspec.Struct, frozen=True, rename=spoken):
    """What a pod takes of one card: MiB, millicards, and how many of its containers share it."""

    uuid: str
    memory_mib: int
    cores: int
    slots: int


class Worker(msgspec.Struct, frozen=True, rename=spoken):
    """What one pod has; `assumed` while its Binding is under way."""

    uid: str
    node: str
    assumed: bool
    gpus: tuple[Held, ...]


class AllocationView(msgspec.Struct, frozen=True, rename="camel"):
    """Pods are called `namespace/name`.

    Attributes:
        gpu_store: cards by UUID.
        node_worker_store: pods with shares by node.
        allocation: what each of these has.
        gpu_to_worker_map: pods by card.
    """

    gpu_store: dict[str, Gpu]
    node_worker_store: dict[str, tuple[str, ...]]
    allocation: dict[str, Worker]
    gpu_to_worker_map: dict[str, tuple[str, ...]]


def view(ledger: Ledger, pods: Iterable[Pod]) -> AllocationView:
    """Answer what a ledger holds for `pods`, which are all that there are."""
    held = {str(pod): holding for pod in pods if (holding := ledger.holding(pod.uid)) is not None}
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    cards: defaultdict[str, list[str]] = defaultdict(list)
    for name, holding in sorted(held.items()):
        nodes[holding.node].append(name)
        for charge in holding.charges:
            cards[charge.uuid].append(name)
    return AllocationView(
        gpu_store={uuid: gpu for node in ledger.nodes for uuid, gpu in _gpus(ledger, node)},
        node_worker_store={node: tuple(names) for node, names in sorted(nodes.items())},
        allocation={name: _worker(holding) for name, holding in sorted(held.items())},
        gpu_to_worker_map={uuid: tuple(names) for uuid, names in sorted(cards.items())},
    )


def _gpus(ledger: Ledger, node: str) -> Iterable[tuple[str, Gpu]]:
    row, inventory = ledger.row(node), ledger.inventory(node)
    for position, card in enumerate(inventory.cards if inventory is not None else ()):
        total = ledger.total[:, row, position].tolist()
        free = (ledger.total[:, row, position] - ledger.used[:, row, position]).tolist()
        memory, cores, slots = (Amount(free[kind], total[kind]) for kind in (MEMORY, CORES, SLOTS))
        yield card.uuid, Gpu(node, card.index, card.model, card.healthy, memory, cores, slots)


def _worker(holding: Holding) -> Worker:
    held = tuple(Held(each.uuid, each.memory_mib, each.cores, each.slots) for each in holding.charges)
    return Worker(holding.uid, holding.node, holding.assumed, held)
