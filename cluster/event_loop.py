"""Measures how long the event loop was blocked: meanwhile the process answers no request and renews no Lease."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_INTERVAL_SECONDS: Final = 0.02
_WINDOW_SECONDS: Final = 60.0


class PauseMonitor(Collector):
    """Measures by how much short sleeps overrun, and reports the longest pause of the last one to two minutes."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._before = 0.0
        self._until = 0.0

    @property
    def longest(self) -> float:
        """The longest pause of the last one to two minutes, in seconds."""
        return max(self._longest, self._before)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            begin = time.monotonic()
            await asyncio.sleep(_INTERVAL_SECONDS)
            self._note(time.monotonic() - begin - _INTERVAL_SECONDS, now=begin)

    def _note(self, pause: float, *, now: float) -> None:
        if now >= self._until:
            self._before, self._longest = self._longest, 0.0
            self._until = now + _WINDOW_SECONDS
        self._longest = max(self._longest, pause)

    def collect(self) -> Iterator[Metric]:
        """Yield the present value of the gauge."""
        gauge = GaugeMetricFamily(
            "tranche_event_loop_longest_pause_seconds",
            "The longest time in the last one to two minutes for which the event loop was blocked.",
        )
        gauge.add_metric((), self.longest)
        yield gauge
