"""Every card as an operator measures it, by HAMi's metric names (hami.md 3), where their meaning is ours."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.card_table import CORES, MEMORY, SLOTS
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.request import MILLI_PER_PERCENT
from cluster import exposition

LABELS: Final = ("zone", "node", "device_uuid", "device_index", "device_type")
FAMILIES: Final = {
    "hami_gpu_memory_limit_bytes": "Device memory of the card.",
    "hami_gpu_core_limit_ratio": "Percent of one card's compute that the card has.",
    "hami_gpu_memory_allocated_bytes": "Device memory given to pods.",
    "hami_gpu_core_allocated_ratio": "Percent of one card's compute given to pods.",
    "hami_node_gpu_memory_allocated_ratio": "Percent of the card's memory given to pods.",
    "hami_gpu_shared_count": "Containers that share the card.",
}
"""Gauges; a "ratio" is 0 to 100 there."""

_ZONE: Final = "vGPU"
_MIB: Final = 2**20
_STEP: Final = 50


class Cards:
    """Read from the ledger when asked, some nodes at a time: cards change in between as they do between scrapes."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Show the cards of what `ledger` answers, none where that is None."""
        self._ledger = ledger
        self._labels: dict[str, tuple[NodeInventory, list[str]]] = {}

    async def text(self) -> AsyncIterator[str]:
        """Answer one family after the other."""
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
        row, inventory = ledger.row(node), ledger.inventory(node)
        if row is None or inventory is None:
            return
        limit, core_limit, allocated, cores, ratio, shared = lines
        used = ledger.used[:, row].tolist()
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
        known = self._labels.get(inventory.node)
        if known is None or known[0] is not inventory:
            values = ((_ZONE, inventory.node, card.uuid, str(card.index), card.model) for card in inventory.cards)
            made = [exposition.labels(dict(zip(LABELS, each, strict=True))) for each in values]
            known = self._labels[inventory.node] = (inventory, made)
        return known[1]


class CardStates(Collector):
    """How many cards new pods may use."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Count the cards of what `ledger` answers."""
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """Answer the numbers as they are now."""
        cards = GaugeMetricFamily(
            "tranche_scheduler_cards",
            "Cards that new pods may use (usable), that are ill (unhealthy), or kept from new pods (cordoned).",
            labels=("state",),
        )
        ledger = self._ledger() or Ledger()
        well = ledger.present & ledger.healthy
        cards.add_metric(("usable",), int((well & ~ledger.cordoned).sum()))
        cards.add_metric(("unhealthy",), int((ledger.present & ~ledger.healthy).sum()))
        cards.add_metric(("cordoned",), int((well & ledger.cordoned).sum()))
        yield cards
