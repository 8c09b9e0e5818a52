"""The machine on which a figure was measured."""

import os
import platform
import time
from pathlib import Path

import msgspec
import numpy as np

_SCHEDULED = 2
"""The kind of a process's clock that counts nanoseconds instead of ticks; clock_getcpuclockid(3) makes the same id."""


class Machine(msgspec.Struct, frozen=True):
    """The machine and the versions that affect figures."""

    processor: str
    processors: int
    memory_gib: int
    system: str
    python: str
    numpy: str

    def __str__(self) -> str:
        """Return the machine in one line."""
        hardware = f"{self.processor}, {self.processors} processors, {self.memory_gib} GiB"
        return f"{hardware}, {self.system}, Python {self.python}"


def describe() -> Machine:
    """Return the machine of this process."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        processor=_model(),
        processors=len(os.sched_getaffinity(0)),
        memory_gib=round(pages * size / 2**30),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        numpy=np.__version__,
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of process `pid` so far, in user and kernel mode, of all of its threads."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def rss_mb(pid: int) -> float:
    """Return the resident memory of process `pid`, in MB."""
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
