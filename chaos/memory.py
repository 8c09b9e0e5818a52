"""The memory of processes over time, and its growth after a warm-up."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from chaos.replica import Replica

EVERY_SECONDS = 5.0
LIMIT_PERCENT = 5.0
_WARM_SECONDS = 600.0
_WINDOW_SECONDS = 120.0
_KIB_OF_MIB = 1024


class Sample(NamedTuple):
    """The resident memory of a process at one time."""

    seconds: float
    process: str
    mib: float


class Growth(NamedTuple):
    """The memory of a process in MiB: after the warm-up, at the end, and the maximum."""

    process: str
    warm: float
    end: float
    most: float

    @property
    def percent(self) -> float:
        """The growth in percent."""
        return 100 * (self.end / self.warm - 1)


async def sampling(replicas: Sequence[Replica], keep: Callable[[Sample], None]) -> None:
    """Sample all replicas at intervals and pass each sample to `keep`, until cancelled."""
    begin = time.monotonic()
    while True:
        for replica in replicas:
            if (pid := replica.pid) is not None:
                keep(Sample(round(time.monotonic() - begin, 1), replica.name, _resident_mib(pid)))
        await asyncio.sleep(EVERY_SECONDS)


def growths(samples: Sequence[Sample], *, seconds: float) -> list[Growth]:
    """Return the growth of each process in a run of `seconds`, from the end of the warm-up to the end of the run.

    The warm-up lasts ten minutes, or a third of a shorter run. Both values are medians over two minutes, or over a
    tenth of a shorter run.
    """
    begin, window = min(_WARM_SECONDS, seconds / 3), min(_WINDOW_SECONDS, seconds / 10)
    grown = []
    for process in dict.fromkeys(each.process for each in samples):
        own = [each for each in samples if each.process == process]
        warm = [each.mib for each in own if begin <= each.seconds <= begin + window]
        end = [each.mib for each in own if each.seconds >= own[-1].seconds - window]
        grown.append(Growth(process, median(warm), median(end), max(each.mib for each in own)))
    return grown


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _KIB_OF_MIB
    return 0.0
