"""`python -m benchmarks`: measure, print each figure with its target, and store the raw numbers."""

import argparse
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    admission,
    arrival,
    bindings,
    claims,
    cluster,
    cost,
    creation,
    decision,
    deployment,
    everything,
    filtering,
    gangs,
    growth,
    hostile,
    idle,
    in_flight,
    ingestion,
    machine,
    page,
    placement,
    policies,
    preemption,
    queues,
    results,
    scrape,
    start,
    steps,
    topology,
    volumes,
)
from benchmarks.pace import pace
from benchmarks.results import Result, Row

_ALL = (
    decision,
    steps,
    growth,
    filtering,
    admission,
    creation,
    policies,
    placement,
    cost,
    arrival,
    in_flight,
    idle,
    start,
    deployment,
    ingestion,
    scrape,
    hostile,
    volumes,
    claims,
    topology,
    bindings,
    queues,
    preemption,
    gangs,
    everything,
    page,
)
_BENCHMARKS = {each.NAME: each.run for each in _ALL}
_FLAMES = {each.NAME: each.flame for each in (decision, filtering, admission, placement)}


def main() -> int:
    """Run benchmarks; exit with 0 if every target was reached, with 1 if one was not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(_BENCHMARKS)}; all by default")
    parser.add_argument(
        "--smoke", action="store_true", help="only check that the benchmarks work; the figures mean nothing"
    )
    parser.add_argument(
        "--results", type=Path, default=results.FOLDER, metavar="DIR", help="directory for raw numbers (%(default)s)"
    )
    parser.add_argument("--flames", type=Path, metavar="DIR", help="instead of measuring, write flame graphs to DIR")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in _BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; the benchmarks are {', '.join(_BENCHMARKS)}")
    if arguments.flames:
        for name in arguments.names or _FLAMES:
            if name in _FLAMES:
                _FLAMES[name](arguments.flames / f"{name}.svg")
        return 0
    here = machine.describe()
    print(here)
    everything: list[Row] = []
    with cluster.shared() if arguments.smoke else nullcontext():
        for name in arguments.names or _BENCHMARKS:
            rows, samples, before = [], [], round(pace(), 2)
            for row, sample in _BENCHMARKS[name](smoke=arguments.smoke):
                print(f"{row.what}: {row.figure}", file=sys.stderr, flush=True)
                rows.append(row)
                samples.append(sample)
            if not rows:  # left out, and it has said why
                continue
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
            Result(name, here, rows, samples, before).write(arguments.results / f"{name}-{stamp}.jsonl")
            everything += rows
    print(results.table(everything))
    return int(any(row.passed is False for row in everything) and not arguments.smoke)


if __name__ == "__main__":
    sys.exit(main())
