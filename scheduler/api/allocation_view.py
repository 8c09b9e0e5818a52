"""The current allocation as four maps, which `GET /api/allocation` returns (docs/api.md)."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.ledger.ledger import Ledger, Reservation
from allocation.ledger.ledger_copy import used_by_pods
from scheduler.api.explanation_types import Amount
from scheduler.api.json_names import json_name
from scheduler.objects import Pod


class Gpu(msgspec.Struct, frozen=True, rename=json_name):
    """A card or MIG instance: its memory in MiB, cores in millicards, and slots in containers."""

    node: str
    index: int
    model: str
    healthy: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount


class GpuShare(msgspec.Struct, frozen=True, rename=json_name):
    """The share of one card that a pod uses: MiB, millicards, and the number of its containers on the card.

    The containers of a pod with a GpuClaim count as one. No other pod may use a `whole` card.
    """

    uuid: str
    memory_mib: int
    cores: int
    slots: int
    whole: bool


class Worker(msgspec.Struct, frozen=True, rename=json_name):
    """The cards of one pod; `assumed` while its Binding is in progress."""

    uid: str
    node: str
    assumed: bool
    gpus: tuple[GpuShare, ...]


class AllocationView(msgspec.Struct, frozen=True, rename="camel"):
    """The cards, and the pods that use them. A pod is identified by `namespace/name`.

    Attributes:
        gpu_store: the cards, by UUID.
        node_worker_store: the pods that use cards, by node.
        allocation: the cards of each of these pods, by pod.
        gpu_to_worker_map: the pods that share each card, by its UUID.
    """

    gpu_store: dict[str, Gpu]
    node_worker_store: dict[str, tuple[str, ...]]
    allocation: dict[str, Worker]
    gpu_to_worker_map: dict[str, tuple[str, ...]]


def view(ledger: Ledger, pods: Iterable[Pod]) -> AllocationView:
    """Return the reservations of a ledger for `pods`, which must be all pods of the cluster."""
    reservations = {str(pod): reservation for pod in pods if (reservation := ledger.reservation(pod.uid)) is not None}
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    cards: defaultdict[str, list[str]] = defaultdict(list)
    for name, reservation in sorted(reservations.items()):
        nodes[reservation.node].append(name)
        for charge in reservation.charges:
            cards[charge.uuid].append(name)
    return AllocationView(
        gpu_store={uuid: gpu for node in ledger.nodes for uuid, gpu in _gpus(ledger, node)},
        node_worker_store={node: tuple(names) for node, names in sorted(nodes.items())},
        allocation={name: _worker(reservation) for name, reservation in sorted(reservations.items())},
        gpu_to_worker_map={uuid: tuple(names) for uuid, names in sorted(cards.items())},
    )


def _gpus(ledger: Ledger, node: str) -> Iterable[tuple[str, Gpu]]:
    row, inventory = ledger.row(node), ledger.inventory(node)
    used = used_by_pods(ledger, node)
    for position, card in enumerate(inventory.cards if inventory is not None else ()):
        total = ledger.total[:, row, position].tolist()
        free = [amount - held[position] for amount, held in zip(total, used, strict=True)]
        memory, cores, slots = (Amount(free[kind], total[kind]) for kind in (MEMORY, CORES, SLOTS))
        yield card.uuid, Gpu(node, card.index, card.model, card.healthy, memory, cores, slots)


def _worker(reservation: Reservation) -> Worker:
    shares = tuple(
        GpuShare(each.uuid, each.memory_mib, each.cores, each.slots, each.whole) for each in reservation.charges
    )
    return Worker(reservation.uid, reservation.node, reservation.assumed, shares)
