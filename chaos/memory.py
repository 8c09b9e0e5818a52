"""The memory of processes over time, and by how much it has grown once they were warm."""

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
    """How much memory a process had in RAM."""

    seconds: float
    process: str
    mib: float


class Growth(NamedTuple):
    """A process: MiB when it was warm, at the end and at most."""

    process: str
    warm: float
    end: float
    most: float

    @property
    def percent(self) -> float:
        """By how much it grew."""
        return 100 * (self.end / self.warm - 1)


async def sampling(replicas: Sequence[Replica], keep: Callable[[Sample], None]) -> None:
    """Have `keep` every sample until cancelled."""
    begin = time.monotonic()
    while True:
        for replica in replicas:
            if (pid := replica.pid) is not None:
                keep(Sample(round(time.monotonic() - begin, 1), replica.name, _resident_mib(pid)))
        await asyncio.sleep(EVERY_SECONDS)


def growths(samples: Sequence[Sample], *, seconds: float) -> list[Growth]:
    """Answer how each process has grown in `seconds`, from minute 10 on; of a shorter run from its first third on.

    Medians of the two minutes that begin there and of the last two; of a shorter run of as much of a tenth of it.
    """
    begin, window = min(_WARM_SECONDS, seconds / 3), min(_WINDOW_SECONDS, seconds / 10)
    found = []
    for process in dict.fromkeys(each.process for each in samples):
        own = [each for each in samples if each.process == process]
        warm = [each.mib for each in own if begin <= each.seconds <= begin + window]
        end = [each.mib for each in own if each.seconds >= own[-1].seconds - window]
        found.append(Growth(process, median(warm), median(end), max(each.mib for each in own)))
    return found


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _KIB_OF_MIB
    return 0.0
