"""A program that allocates memory of cards as a process of a container, under a stub of CUDA's driver or the real one.

It is linked to the stub, whose name and functions are the driver's: without the stub's folder, it loads the driver.
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE_S

SOURCES: Final = Path(__file__).parent
_FLAGS: Final = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1")


class NotStartedError(Exception):
    """The container runtime refuses to start a container."""


@dataclass(frozen=True)
class Programs:
    """What was compiled.

    Attributes:
        driver: the folder of `libcuda.so.1`.
        limiter: the library that stands for HAMi-core.
        probe: the program that allocates until it is refused.
    """

    driver: Path
    limiter: Path
    probe: Path


def build(folder: Path) -> Programs:
    """Compile driver, limiter and probe into a folder."""
    programs = Programs(folder, folder / "libvgpu.so", folder / "probe")
    library = folder / "libcuda.so.1"
    _compile("libcuda.c", library, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    _compile("libvgpu.c", programs.limiter, "-shared", "-fPIC", "-ldl")
    _compile("probe.c", programs.probe, str(library))
    return programs


def _compile(source: str, target: Path, *options: str) -> None:
    subprocess.run(["cc", *_FLAGS, "-o", str(target), str(SOURCES / source), *options], check=True)


@dataclass(frozen=True)
class ShownCard:
    """A card as CUDA shows it to a process.

    Attributes:
        mib: what the process got of its memory.
        total_mib: the memory that CUDA says it has.
        processors: its multiprocessors that the process may use.
        uuid: its UUID without the prefix.
    """

    mib: int
    total_mib: int
    processors: int
    uuid: str


class Process:
    """A process that has allocated all that it may, and keeps it until it is ended."""

    def __init__(self, started: "subprocess.Popen[str]") -> None:
        self._process = started
        assert started.stdout is not None
        self.result = started.stdout.readline().strip()

    @property
    def cards(self) -> list[ShownCard]:
        """The cards that CUDA shows it, in CUDA's order."""
        return [
            ShownCard(int(mib), int(total), int(processors), uuid)
            for mib, total, processors, uuid in (word.split(":") for word in self.result.split())
        ]

    @property
    def mib(self) -> list[int]:
        """The MiB that it got of each card, in the order in which CUDA shows them."""
        return [card.mib for card in self.cards]

    def end(self) -> None:
        """Let it end, and give its memory back."""
        self._process.communicate(timeout=PATIENCE_S)


class Container:
    """A container that was started with an environment, which never changes."""

    def __init__(
        self, probe: Sequence[str], environment: Mapping[str, str], *, step_mib: int, most_mib: int = 2**31 - 1
    ) -> None:
        """Run the command `probe` in it, which allocates in these steps, and at most so much of each card."""
        self._probe = (*probe, str(step_mib), str(most_mib))
        self._environment = environment
        self._processes: list[Process] = []

    def run(self, *, unset: Iterable[str] = (), **changed: str) -> Process:
        """Run the probe; a process may change its own environment."""
        environment = {name: value for name, value in self._environment.items() if name not in {*unset}}
        started = subprocess.Popen(
            self._probe,
            env={**environment, **changed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        process = Process(started)
        self._processes.append(process)
        return process

    def end(self) -> None:
        """End its processes."""
        for process in self._processes:
            process.end()
        self._processes.clear()
