"""Metrics of each card, by HAMi's metric names (docs/operations.md) where the meaning is the same."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import used_by_pods
from allocation.request import MILLI_PER_PERCENT
from cluster.http import exposition


class Family(NamedTuple):
    """A gauge: what it means, and its labels."""

    what: str
    labels: tuple[str, ...]


_CARD: Final = ("zone", "node", "device_uuid", "device_index", "device_type")
_SIZE: Final = ("device_cores", "device_memory_limit")
_INSTANCE: Final = (
    *("zone", "node", "device_uuid", "device_index", "mig_uuid", "profile"),
    *("gpu_instance_id", "compute_instance_id", "placement_start", "placement_size"),
)
FAMILIES: Final = {
    "hami_gpu_memory_limit_bytes": Family("Device memory of the card.", _CARD),
    "hami_gpu_core_limit_ratio": Family("Percent of one card's compute that the card has.", _CARD),
    "hami_gpu_memory_allocated_bytes": Family("Device memory allocated to pods.", _CARD),
    "hami_gpu_core_allocated_ratio": Family("Percent of one card's compute allocated to pods.", _CARD),
    "hami_node_gpu_memory_allocated_ratio": Family("Part of the card's memory allocated to pods: 0 to 1.", _CARD),
    "hami_gpu_shared_count": Family(
        "Slots in use: one for each container that shares the card, all for an exclusive claim.", _CARD
    ),
    "hami_node_gpu_overview": Family(
        "Device memory allocated to pods, with the card's compute in percent and its memory in MiB as labels.",
        (*_CARD, *_SIZE),
    ),
    "hami_node_gpu_mig_instance_info": Family("Always 1: a MIG instance that a pod has.", _INSTANCE),
}
"""Gauges; a "ratio" of compute is 0 to 100, one of memory 0 to 1."""

ZONE: Final = "vGPU"
_MIB: Final = 2**20
_STEP: Final = 50


class _Labels(NamedTuple):
    """The labels of a card, the same with its size, and those of the MIG instance that it is; empty for a card."""

    card: str
    sized: str
    instance: str


class Cards:
    """Reads the ledger at each scrape, some nodes at a time; cards may change in between, as between two scrapes."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Show the cards of the ledger that `ledger` returns, or no cards if that is None."""
        self._ledger = ledger
        self._labels: dict[str, tuple[NodeInventory, list[_Labels]]] = {}

    async def text(self) -> AsyncIterator[str]:
        """Iterate over the texts of the metric families."""
        ledger = self._ledger() or Ledger()
        lines: tuple[list[str], ...] = tuple([] for _ in FAMILIES)
        for number, node in enumerate(ledger.nodes):
            self._add(ledger, node, lines)
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        for node in self._labels.keys() - set(ledger.nodes):
            del self._labels[node]
        for (name, family), some in zip(FAMILIES.items(), lines, strict=True):
            yield f"# HELP {name} {family.what}\n# TYPE {name} gauge\n{''.join(some)}"
            await asyncio.sleep(0)

    def _add(self, ledger: Ledger, node: str, lines: tuple[list[str], ...]) -> None:
        inventory = ledger.inventory(node)
        if inventory is None:
            return
        limit, core_limit, allocated, cores, ratio, shared, overview, instances = lines
        used = used_by_pods(ledger, node)
        for position, (card, each) in enumerate(zip(inventory.cards, self._labels_of(inventory), strict=True)):
            labels = each.card
            memory = used[MEMORY][position]
            limit.append(f"hami_gpu_memory_limit_bytes{labels} {card.memory_mib * _MIB}\n")
            core_limit.append(f"hami_gpu_core_limit_ratio{labels} {card.cores / MILLI_PER_PERCENT}\n")
            allocated.append(f"hami_gpu_memory_allocated_bytes{labels} {memory * _MIB}\n")
            cores.append(f"hami_gpu_core_allocated_ratio{labels} {used[CORES][position] / MILLI_PER_PERCENT}\n")
            part = memory / card.memory_mib if card.memory_mib else 0.0
            ratio.append(f"hami_node_gpu_memory_allocated_ratio{labels} {part}\n")
            shared.append(f"hami_gpu_shared_count{labels} {used[SLOTS][position]}\n")
            overview.append(f"hami_node_gpu_overview{each.sized} {memory * _MIB}\n")
            if each.instance and used[SLOTS][position]:
                instances.append(f"hami_node_gpu_mig_instance_info{each.instance} 1\n")

    def _labels_of(self, inventory: NodeInventory) -> list[_Labels]:
        cached = self._labels.get(inventory.node)
        if cached is None or cached[0] is not inventory:
            made = [_labels(inventory.node, card) for card in inventory.cards]
            cached = self._labels[inventory.node] = (inventory, made)
        return cached[1]


def _labels(node: str, card: Card) -> _Labels:
    values = (ZONE, node, card.uuid, str(card.index), card.model)
    size = (f"{card.cores / MILLI_PER_PERCENT:g}", str(card.memory_mib))
    return _Labels(_text(_CARD, values), _text((*_CARD, *_SIZE), (*values, *size)), _of_instance(node, card))


def _of_instance(node: str, card: Card) -> str:
    """Return the labels of a MIG instance; an ID or a position that is unknown is empty."""
    instance = card.instance
    if instance is None:
        return ""
    slices = instance.slices
    numbers = (
        *(instance.gpu_instance_id, instance.compute_instance_id),
        *((slices.start, slices.size) if slices is not None else (None, None)),
    )
    known = ("" if number is None else str(number) for number in numbers)
    return _text(_INSTANCE, (ZONE, node, instance.parent, str(card.index), card.uuid, instance.profile, *known))


def _text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return exposition.labels(dict(zip(names, values, strict=True)))


class CardStates(Collector):
    """The number of cards by whether new pods may use them."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Count the cards of the ledger that `ledger` returns."""
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        cards = GaugeMetricFamily(
            "tranche_scheduler_cards",
            "Cards that new pods may use (usable), that are unhealthy, or that are cordoned.",
            labels=("state",),
        )
        ledger = self._ledger() or Ledger()
        healthy = ledger.present & ledger.healthy
        cards.add_metric(("usable",), int((healthy & ~ledger.cordoned).sum()))
        cards.add_metric(("unhealthy",), int((ledger.present & ~ledger.healthy).sum()))
        cards.add_metric(("cordoned",), int((healthy & ledger.cordoned).sum()))
        yield cards
