"""Wait for a condition, with a deadline and a name for error messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

INTERVAL_S = 0.05
READY_S = 120.0
"""A program that ends is noticed at once: this is for one that hangs, on the slowest machine that runs a lab."""

T = TypeVar("T")


class Process(Protocol):
    """A process that has to run while something is waited for."""

    @property
    def log(self) -> Path:
        """The file with its output."""

    def require_running(self) -> None:
        """Raise LabError if it has exited."""


def until(
    probe: Callable[[], T | None],
    *,
    what: str,
    timeout_s: float = READY_S,
    daemons: Iterable[Process] = (),
    remedy: str = "",
) -> T:
    """Wait until `probe` returns a true value, and return this value.

    Args:
        probe: called every `INTERVAL_S`, at least once.
        what: the name of the condition, for the error message.
        timeout_s: the deadline in seconds.
        daemons: the processes that must run meanwhile. If one exits, the error has the end of its log.
        remedy: the next step after a timeout.

    Raises:
        LabError: the deadline passed, or a daemon exited.
    """
    watched = tuple(daemons)
    deadline = time.monotonic() + timeout_s
    while True:
        if value := probe():
            return value
        for daemon in watched:
            daemon.require_running()
        if time.monotonic() >= deadline:
            logs = ", ".join(str(daemon.log) for daemon in watched)
            raise LabError(
                what,
                why=f"timed out after {timeout_s:g} s",
                remedy=remedy or (f"read {logs}" if logs else "run `make doctor`"),
            )
        time.sleep(INTERVAL_S)
