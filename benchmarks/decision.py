"""One decision: fit, score, choice of cards, reservation. Beside it one numpy pass over the same columns."""

import random
import time
from collections.abc import Callable, Iterator

from allocation.index import Index
from allocation.ledger import Ledger
from allocation.request import PodRequest
from benchmarks import fleets
from benchmarks.floor import floor
from benchmarks.results import Row, Sample, microseconds, percentile

NAME = "decision"
_TARGETS = {
    # nodes: kind: (p50, p99) in µs
    5_000: {"new": (1000, 3000), "repeating": (40, 1000), "mix of 50": (40, 1000)},
    100_000: {"repeating": (80, 0), "mix of 50": (80, 0)},
}


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for nodes in (100,) if smoke else (100, 1_000, 5_000, 20_000, 100_000):
        yield from _at(nodes, decisions=20 if smoke else 3_000)


def _at(nodes: int, *, decisions: int) -> Iterator[tuple[Row, Sample]]:
    ledger = fleets.half_full(nodes)
    index, chance = Index(ledger), random.Random(2)
    beside = f"one numpy pass {microseconds(floor(ledger))}"
    burst, mixed = fleets.request(3000), fleets.mix(50)
    kinds: dict[str, Callable[[int], PodRequest]] = {
        "new": lambda number: fleets.request(3001 + number),
        "repeating": lambda _: burst,
        "mix of 50": lambda _: chance.choice(mixed),
    }
    for kind, make in kinds.items():
        count = min(decisions, 200) if kind == "new" else decisions
        if kind != "new":
            for warm in (burst, *mixed):
                index.shape(warm, fleets.ANY).place(warm)
        seconds = [_decide(ledger, index, make(number), f"{kind}-{number}") for number in range(count)]
        what = f"decision, {nodes:,} nodes of {fleets.CARDS} cards, {kind}"
        target, passed = _judge(seconds, _TARGETS.get(nodes, {}).get(kind))
        yield Row(NAME, what, microseconds(seconds), beside, target, passed), Sample(NAME, what, seconds)


def _decide(ledger: Ledger, index: Index, request: PodRequest, uid: str) -> float:
    begin = time.perf_counter()
    chosen = index.shape(request, fleets.ANY).place(request)
    if chosen is None:
        raise SystemExit(f"decision: the fleet is full at {uid}; make it larger")
    ledger.assume(uid, chosen.allocation.node, chosen.charges)
    return time.perf_counter() - begin


def _judge(seconds: list[float], target: tuple[int, int] | None) -> tuple[str, bool | None]:
    if target is None:
        return "", None
    p50, p99 = (percentile(seconds, percent) * 1e6 for percent in (50, 99))
    words = f"p50 ≤ {target[0]} µs" + (f", p99 ≤ {target[1]} µs" if target[1] else "")
    return words, p50 <= target[0] and (not target[1] or p99 <= target[1])
