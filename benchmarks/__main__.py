"""`python -m benchmarks`: measure, print what came out beside its target, keep the raw numbers."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import admission, decision, filtering, growth, ingestion, machine, placement, results, scrape, start

_RESULTS = Path("benchmarks/results")
_BENCHMARKS = {
    each.NAME: each.run for each in (decision, growth, filtering, admission, placement, start, ingestion, scrape)
}


def main() -> int:
    """Answer 0 where every target was reached, 1 where one was not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_BENCHMARKS)}; default all")
    parser.add_argument("--smoke", action="store_true", help="only see that they work; the figures mean nothing")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/results"), metavar="DIR", help="for raw numbers"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in _BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(_BENCHMARKS)}")
    here = machine.describe()
    print(f"{here.processor}, {here.processors} processors, {here.memory_gib} GiB, {here.system}, Python {here.python}")
    failed = False
    for name in arguments.names or _BENCHMARKS:
        rows, samples = [], []
        for row, sample in _BENCHMARKS[name](smoke=arguments.smoke):
            print(f"{row.what}: {row.figure}", file=sys.stderr, flush=True)
            rows.append(row)
            samples.append(sample)
            failed |= row.passed is False
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
        results.write(arguments.results / f"{name}-{stamp}.jsonl", here, rows, samples)
        print(results.table(rows))
    return int(failed and not arguments.smoke)


if __name__ == "__main__":
    sys.exit(main())
