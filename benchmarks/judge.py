"""Judges in a minute, without an API server, whether decisions have become slower or their steps longer.

`make bench` measures everything on a quiet machine. CI has whatever machine it gets, so here the medians count, after
division by the pace of the machine, and half as much again is allowed: what takes twice as long is found, a percent is
not.
"""

import argparse
import sys
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import decision, steps
from benchmarks.pace import pace

_DECISIONS: Final = 500
_TIMES: Final = 5
_ATTEMPTS: Final = 2
_ALLOWED: Final = 1.5
"""Of each limit."""


def main() -> int:
    """Judge; exit with 1 if a limit is exceeded in both of two attempts."""
    argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__).parse_args()
    exceeded: set[str] | None = None
    for attempt in range(_ATTEMPTS):
        found = set[str]()
        for what, part in _parts():
            if part > _ALLOWED:
                found.add(what)
                print(f"{what}: {part:.2f} of its limit (attempt {attempt + 1})", file=sys.stderr, flush=True)
        exceeded = found if exceeded is None else exceeded & found
        if not exceeded:
            break
    if exceeded:
        print(f"error: slower than its limit: {'; '.join(sorted(exceeded))}; see docs/performance.md", file=sys.stderr)
        return 1
    print("decisions and their longest steps are within their limits")
    return 0


def _parts() -> list[tuple[str, float]]:
    """Return each measured median, at the pace of the machine of the results, as a part of its limit."""
    measured, paces = list[tuple[str, float]](), list[float]()
    for each in _medians():
        measured.append(each)
        paces.append(pace())
    return [(what, part / median(paces)) for what, part in measured]


def _medians() -> Iterator[tuple[str, float]]:
    targets = decision.TARGETS[steps.NODES]
    for _, sample in decision.at(steps.NODES, benchmark=decision.NAME, decisions=_DECISIONS):
        limit_us, _ = targets.get(sample.what.partition("cards, ")[2], (0, 0))
        if limit_us:
            yield sample.what, median(sample.seconds) * 1e6 / limit_us
    for what, seconds in steps.measured(steps.NODES, times=_TIMES):
        yield f"longest step of {what}", median(seconds) * 1e3 / steps.MOST_MS


if __name__ == "__main__":
    sys.exit(main())
