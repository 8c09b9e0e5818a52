"""`python -m benchmarks.packing.cost`: how much longer a decision takes with the weight `stranded` than without it.

Processor time of the same tasks, in pairs of runs that alternate in which is first; the result is the median over the
pairs, so that what else the machine does counts little.
"""

import argparse
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import machine
from benchmarks.packing import run, workload
from benchmarks.packing.ours import ours
from benchmarks.packing.workload import Workload
from benchmarks.results import percentile
from cluster import process

_MOST_MEAN: Final = 1.05
_MOST_P99: Final = 1.1


class Pair(msgspec.Struct, frozen=True):
    """Two runs with one seed; all times in µs.

    Attributes:
        seed: of the tasks.
        mean: the mean time of a decision.
        p99: the 99th percentile.
        mean_without: the mean with `stranded: 0`.
        p99_without: the 99th percentile with `stranded: 0`.
    """

    seed: int
    mean: float
    p99: float
    mean_without: float
    p99_without: float


def main() -> int:
    """Run the pairs; exit with 1 if the mean grows by more than 5 %, or the 99th percentile by more than 10 %."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing.cost", description=main.__doc__)
    parser.add_argument("--trace", type=Path, metavar="DIR", help="folder of openb's two files; random shapes without")
    parser.add_argument("--pairs", type=int, default=6, metavar="N", help="pairs of runs (%(default)s)")
    parser.add_argument("--nodes", type=int, default=400, metavar="N", help="nodes for random shapes (%(default)s)")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/raw/packing"), metavar="DIR", help="raw figures (%(default)s)"
    )
    arguments = parser.parse_args()
    shapes = workload.random_shapes(nodes=arguments.nodes)
    load = workload.read(arguments.trace) if arguments.trace is not None else shapes
    here, path = machine.describe(), arguments.results / f"cost-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.jsonl"
    print(here)
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = []
    with path.open("wb") as raw:
        raw.write(msgspec.json.encode(here) + b"\n")
        for seed in range(1, arguments.pairs + 1):
            pair = _pair(load, seed)
            print(f"{load.name}, seed {seed}: {pair}", file=sys.stderr, flush=True)
            raw.write(msgspec.json.encode(pair) + b"\n")
            pairs.append(pair)
    mean = statistics.median(each.mean / each.mean_without for each in pairs)
    p99 = statistics.median(each.p99 / each.p99_without for each in pairs)
    print(f"{load.name}: a decision takes {mean:.3f} times as long as with stranded: 0, the slowest percent {p99:.3f}")
    return int(mean > _MOST_MEAN or p99 > _MOST_P99)


def _pair(load: Workload, seed: int) -> Pair:
    found = {stranded: _times(load, seed, stranded) for stranded in ((300.0, 0.0) if seed % 2 else (0.0, 300.0))}
    return Pair(seed, *found[300.0], *found[0.0])


def _times(load: Workload, seed: int, stranded: float) -> tuple[float, float]:
    """Return the mean and the 99th percentile of a decision in µs."""
    process.settle()
    seconds = run.arrive(load, ours(load.machines, stranded=stranded), seed=seed).seconds
    return run.mean(seconds) * 1e6, percentile(seconds, 99) * 1e6


if __name__ == "__main__":
    sys.exit(main())
