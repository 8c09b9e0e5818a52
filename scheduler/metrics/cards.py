"""Metrics of each card, by HAMi's metric names (docs/operations.md) where the meaning is the same."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.inventory import NodeInventory
from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import used_by_pods
from allocation.request import MILLI_PER_PERCENT
from cluster.http import exposition

LABELS: Final = ("zone", "node", "device_uuid", "device_index", "device_type")
FAMILIES: Final = {
    "hami_gpu_memory_limit_bytes": "Device memory of the card.",
    "hami_gpu_core_limit_ratio": "Percent of one card's compute that the card has.",
    "hami_gpu_memory_allocated_bytes": "Device memory allocated to pods.",
    "hami_gpu_core_allocated_ratio": "Percent of one card's compute allocated to pods.",
    "hami_node_gpu_memory_allocated_ratio": "Percent of the card's memory allocated to pods.",
    "hami_gpu_shared_count": "Slots in use: one for each container that shares the card, all for an exclusive claim.",
}
"""Gauges; a "ratio" is 0 to 100 there."""

_ZONE: Final = "vGPU"
_MIB: Final = 2**20
_STEP: Final = 50


class Cards:
    """Reads the ledger at each scrape, some nodes at a time; cards may change in between, as between two scrapes."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Show the cards of the ledger that `ledger` returns, or no cards if that is None."""
        self._ledger = ledger
        self._labels: dict[str, tuple[NodeInventory, list[str]]] = {}

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
        for (name, what), some in zip(FAMILIES.items(), lines, strict=True):
            yield f"# HELP {name} {what}\n# TYPE {name} gauge\n{''.join(some)}"
            await asyncio.sleep(0)

    def _add(self, ledger: Ledger, node: str, lines: tuple[list[str], ...]) -> None:
        inventory = ledger.inventory(node)
        if inventory is None:
            return
        limit, core_limit, allocated, cores, ratio, shared = lines
        used = used_by_pods(ledger, node)
        for position, (card, labels) in enumerate(zip(inventory.cards, self._labels_of(inventory), strict=True)):
            memory = used[MEMORY][position]
            limit.append(f"hami_gpu_memory_limit_bytes{labels} {card.memory_mib * _MIB}\n")
            core_limit.append(f"hami_gpu_core_limit_ratio{labels} {card.cores / MILLI_PER_PERCENT}\n")
            allocated.append(f"hami_gpu_memory_allocated_bytes{labels} {memory * _MIB}\n")
            cores.append(f"hami_gpu_core_allocated_ratio{labels} {used[CORES][position] / MILLI_PER_PERCENT}\n")
            percent = 100 * memory / card.memory_mib if card.memory_mib else 0.0
            ratio.append(f"hami_node_gpu_memory_allocated_ratio{labels} {percent}\n")
            shared.append(f"hami_gpu_shared_count{labels} {used[SLOTS][position]}\n")

    def _labels_of(self, inventory: NodeInventory) -> list[str]:
        cached = self._labels.get(inventory.node)
        if cached is None or cached[0] is not inventory:
            values = ((_ZONE, inventory.node, card.uuid, str(card.index), card.model) for card in inventory.cards)
            made = [exposition.labels(dict(zip(LABELS, each, strict=True))) for each in values]
            cached = self._labels[inventory.node] = (inventory, made)
        return cached[1]


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
