"""The cost of one decision: fit, score, choice of cards, reservation. The peer is a numpy pass over the columns."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from allocation.ledger.ledger import Ledger
from allocation.placement.ranking_cache import RankingCache
from allocation.request import PodRequest
from allocation.steps import finish
from benchmarks import fleets, profile
from benchmarks.floor import floor
from benchmarks.pace import within
from benchmarks.results import Row, Sample, microseconds, percentile
from cluster import process

NAME = "decision"
TARGETS = {
    # nodes: kind: (p50, p99) in µs
    5_000: {"a shape never seen": (1000, 3000), "repeating": (40, 1000), "mix of 50": (40, 1000)},
    100_000: {"a shape never seen": (6000, 0), "repeating": (80, 0), "mix of 50": (80, 0)},
}


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for nodes in (100,) if smoke else TARGETS:
        yield from at(nodes, benchmark=NAME, decisions=20 if smoke else 3_000)


def at(nodes: int, *, benchmark: str, decisions: int) -> Iterator[tuple[Row, Sample]]:
    """Measure in a fleet of `nodes` nodes that is half full initially; every decision is reserved."""
    ledger = fleets.half_full(nodes)
    index, chance = RankingCache(ledger), random.Random(2)
    process.settle()
    reference = f"one numpy pass {microseconds(floor(ledger))}"
    burst, mixed = fleets.request(3000), fleets.mix(50)
    in_tflops = fleets.request(3000, 0, tflops=100_000)
    kinds: dict[str, Callable[[int], PodRequest]] = {
        "a shape never seen": lambda number: fleets.request(3001 + number),
        "repeating": lambda _: burst,
        "mix of 50": lambda _: chance.choice(mixed),
        "in TFLOPs": lambda _: in_tflops,
    }
    for kind, make in kinds.items():
        is_new = kind == "a shape never seen"
        for warm in () if is_new else (burst, in_tflops, *mixed):
            finish(index.ranking(warm, fleets.ANY).place(warm))
        # The oldest pods end, as in a cluster; otherwise a small fleet would fill up.
        count, headroom = min(decisions, 200) if is_new else decisions, nodes * 2
        seconds = []
        for number in range(count):
            seconds.append(_decide(ledger, index, make(number), f"{kind}-{number}"))
            ledger.release(f"{kind}-{number - headroom}")
        for number in range(count):
            ledger.release(f"{kind}-{number}")
        what = f"decision, {nodes:,} nodes of {fleets.CARDS} cards, {kind}"
        target, passed = _verdict(seconds, TARGETS.get(nodes, {}).get(kind) if benchmark == NAME else None)
        yield Row(benchmark, what, microseconds(seconds), reference, target, passed), Sample(benchmark, what, seconds)


def flame(path: Path) -> None:
    """Write a flame graph of decisions for a mix of shapes in a fleet of 5,000 nodes."""
    ledger = fleets.half_full(5_000)
    index, chance, mixed = RankingCache(ledger), random.Random(2), fleets.mix(50)
    for request in mixed:
        finish(index.ranking(request, fleets.ANY).place(request))
    with profile.recorded(os.getpid(), path):
        for number in range(100_000):
            _decide(ledger, index, chance.choice(mixed), f"mix-{number}")
            ledger.release(f"mix-{number - 5_000}")


def _decide(ledger: Ledger, index: RankingCache, request: PodRequest, uid: str) -> float:
    begin = time.perf_counter()
    chosen = finish(index.ranking(request, fleets.ANY).place(request))
    if chosen is None:
        raise SystemExit(f"decision: the fleet is full at {uid}; make it larger")
    ledger.assume(uid, chosen.allocation.node, chosen.charges)
    return time.perf_counter() - begin


def _verdict(seconds: list[float], target: tuple[int, int] | None) -> tuple[str, bool | None]:
    if target is None:
        return "", None
    p50, p99 = (percentile(seconds, percent) * 1e6 for percent in (50, 99))
    words = f"! p50 ≤ {target[0]} µs" + (f", p99 ≤ {target[1]} µs" if target[1] else "")
    return words, within(max(p50 / target[0], p99 / target[1] if target[1] else 0.0), 1.0)
