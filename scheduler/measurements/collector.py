"""Metrics of reservations and their use."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.measurements.use_of_shares import USES, UseOfShares


class UseCollector(Collector):
    """Reads the use of shares at each scrape."""

    def __init__(self, use: Callable[[], UseOfShares | None]) -> None:
        """Show what `use` returns: None while this replica does not schedule, or reads no measurements."""
        self._use = use

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        use = self._use()
        if use is None:
            return
        shares = GaugeMetricFamily(
            "tranche_scheduler_shares",
            "Shares of cards that pods have, by their use: active, idle (no kernel for a while), unknown.",
            labels=("use",),
        )
        counts = use.counts()
        for each in USES:
            shares.add_metric((each,), counts[each])
        cards = GaugeMetricFamily("tranche_scheduler_idle_cards", "Cards that idle shares hold, in parts of cards.")
        cards.add_metric((), use.idle_cards)
        yield from (shares, cards)
