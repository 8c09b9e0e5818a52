"""How fast this machine is now, beside the one of docs/performance/results.md: limits in seconds are limits there.

The processors of one machine differ by a factor of three between hours, and CI has others. A limit that is meant for
work of the interpreter is therefore compared after division by the pace.
"""

import time
from statistics import median
from typing import Final

_REFERENCE_S: Final = 0.00074
"""What the piece of work took there, found by decisions of the same commit on both machines."""
_TIMES: Final = 30
_NAMES: Final = [f"node-{number * 7919 % 1000:06d}" for number in range(1000)]


def pace() -> float:
    """Return the CPU time of a fixed piece of work, as a multiple of what it took on the machine of the results."""
    seconds = []
    for _ in range(_TIMES):
        begin = time.thread_time()
        _work()
        seconds.append(time.thread_time() - begin)
    return median(seconds) / _REFERENCE_S


def within(measured: float, limit: float) -> bool:
    """Return whether work that was done just now took no longer than its limit, times the pace."""
    return measured <= limit * pace()


def _work() -> int:
    """Strings, dictionaries, attributes, a sort: what decisions consist of beside numpy."""
    total = 0
    for _ in range(6):
        by_name = {name: len(name) + number for number, name in enumerate(_NAMES)}
        for name in sorted(by_name):
            total += by_name[name]
    return total
