"""What an operator measures of the scheduler: its decisions, and what of each card is given out."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.ledger import CORES, MEMORY, SLOTS, Ledger
from allocation.request import MILLI_PER_PERCENT

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CARD_LABELS: Final = ("zone", "node", "device_uuid", "device_index", "device_type")
_ZONE: Final = "vGPU"
_MIB: Final = 2**20


class Metrics:
    """The scheduler's metrics, in a registry of their own."""

    def __init__(self, *, ledger: Callable[[], Ledger | None]) -> None:
        """Measure; `ledger` answers that of the term under way, None where there is none."""
        self.registry = CollectorRegistry()
        self.registry.register(_Cards(ledger))
        self.decisions = Counter(
            "tranche_scheduler_decisions", "Decisions by outcome.", ["outcome"], registry=self.registry
        )
        self.bind_seconds = Histogram(
            "tranche_scheduler_bind_seconds",
            "From the decision to the outcome of its Binding.",
            buckets=_BUCKETS,
            registry=self.registry,
        )


class _Cards(Collector):
    """Every card, by HAMi's metric names (hami.md 3); read from the ledger when asked, "ratio" is 0 to 100 there."""

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """Answer the gauges of the ledger as it is now."""
        limit = _gauge("hami_gpu_memory_limit_bytes", "Device memory of the card.")
        allocated = _gauge("hami_gpu_memory_allocated_bytes", "Device memory given to pods.")
        cores = _gauge("hami_gpu_core_allocated_ratio", "Percent of the card's compute given to pods.")
        shared = _gauge("hami_gpu_shared_count", "Containers that share the card.")
        ledger = self._ledger() or Ledger()
        for node in ledger.nodes:
            row, inventory = ledger.row(node), ledger.inventory(node)
            if row is None or inventory is None:
                continue
            used = ledger.used[:, row].tolist()
            for position, card in enumerate(inventory.cards):
                labels = (_ZONE, node, card.uuid, str(card.index), card.model)
                limit.add_metric(labels, card.memory_mib * _MIB)
                allocated.add_metric(labels, used[MEMORY][position] * _MIB)
                cores.add_metric(labels, used[CORES][position] / MILLI_PER_PERCENT)
                shared.add_metric(labels, used[SLOTS][position])
        yield from (limit, allocated, cores, shared)


def _gauge(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=_CARD_LABELS)
