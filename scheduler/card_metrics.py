"""Every card as an operator measures it, by HAMi's metric names (hami.md 3), where their meaning is ours."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.ledger import CORES, MEMORY, SLOTS, Ledger
from allocation.request import MILLI_PER_PERCENT

_LABELS: Final = ("zone", "node", "device_uuid", "device_index", "device_type")
_ZONE: Final = "vGPU"
_MIB: Final = 2**20
_GAUGES: Final = {
    "hami_gpu_memory_limit_bytes": "Device memory of the card.",
    "hami_gpu_core_limit_ratio": "Percent of one card's compute that the card has.",
    "hami_gpu_memory_allocated_bytes": "Device memory given to pods.",
    "hami_gpu_core_allocated_ratio": "Percent of one card's compute given to pods.",
    "hami_node_gpu_memory_allocated_ratio": "Percent of the card's memory given to pods.",
    "hami_gpu_shared_count": "Containers that share the card.",
}


class Cards(Collector):
    """Read from the ledger when asked; a "ratio" is 0 to 100 there."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Show the cards of what `ledger` answers, none where that is None."""
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """Answer the gauges of the ledger as it is now."""
        gauges = [GaugeMetricFamily(name, text, labels=_LABELS) for name, text in _GAUGES.items()]
        healthy = GaugeMetricFamily(
            "tranche_scheduler_cards",
            "Cards that new pods may use (usable), that are ill (unhealthy) or kept from new pods (cordoned).",
            labels=("state",),
        )
        ledger = self._ledger() or Ledger()
        for node in ledger.nodes:
            row, inventory = ledger.row(node), ledger.inventory(node)
            if row is None or inventory is None:
                continue
            used = ledger.used[:, row].tolist()
            for position, card in enumerate(inventory.cards):
                labels = (_ZONE, node, card.uuid, str(card.index), card.model)
                memory, cores, slots = (used[dimension][position] for dimension in (MEMORY, CORES, SLOTS))
                values = (
                    card.memory_mib * _MIB,
                    card.cores / MILLI_PER_PERCENT,
                    memory * _MIB,
                    cores / MILLI_PER_PERCENT,
                    100 * memory / card.memory_mib if card.memory_mib else 0.0,
                    slots,
                )
                for gauge, value in zip(gauges, values, strict=True):
                    gauge.add_metric(labels, value)
        ill = ledger.present & ~ledger.healthy
        cordoned = ledger.present & ledger.healthy & ledger.cordoned
        healthy.add_metric(("usable",), int((ledger.present & ledger.healthy & ~ledger.cordoned).sum()))
        healthy.add_metric(("unhealthy",), int(ill.sum()))
        healthy.add_metric(("cordoned",), int(cordoned.sum()))
        yield from (*gauges, healthy)
