"""The cost of scraping the scheduler's metrics with a large fleet, and how long a scrape delays decisions."""

import asyncio
import time
from collections.abc import Iterator

import uvloop

from benchmarks import fleets
from benchmarks.pace import within
from benchmarks.results import Row, Sample, percentile
from cluster.http import exposition
from scheduler.metrics.instruments import Metrics

NAME = "scrape"
_PAUSE_MS = 10.0


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes moments and its figures mean nothing."""
    nodes = 10 if smoke else 1000
    yield from uvloop.run(_run(nodes, scrapes=2 if smoke else 50))


async def _run(nodes: int, *, scrapes: int) -> list[tuple[Row, Sample]]:
    ledger = fleets.half_full(nodes)
    metrics = Metrics()
    metrics.show_cards(lambda: ledger)
    taken, pauses, size = [], [], 0
    for _ in range(scrapes):
        seen: list[float] = []
        other = asyncio.create_task(_note_pauses(seen))
        await asyncio.sleep(0)
        begin = time.perf_counter()
        size = len(await exposition.text(metrics.registry))
        taken.append(time.perf_counter() - begin)
        await asyncio.sleep(0)
        other.cancel()
        pauses.append(max(seen))
    fleet = f"{nodes} nodes with {fleets.CARDS} cards"
    cost = f"p50 {percentile(taken, 50) * 1e3:.1f} ms, p99 {percentile(taken, 99) * 1e3:.1f} ms, {size / 1e6:.1f} MB"
    worst = max(pauses) * 1e3
    target = f"≤ {_PAUSE_MS:g} ms"
    what = (f"scrape, {fleet}", f"scrape, {fleet}, longest pause of everything else")
    return [
        (Row(NAME, what[0], cost), Sample(NAME, what[0], taken)),
        (Row(NAME, what[1], f"{worst:.1f} ms", "", target, within(worst, _PAUSE_MS)), Sample(NAME, what[1], pauses)),
    ]


async def _note_pauses(seen: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        seen.append(now - last)
        last = now
