"""Waiting for a condition, always with a deadline and always for something that has a name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.processes import Daemon

INTERVAL_S = 0.05

T = TypeVar("T")


def until(
    probe: Callable[[], T | None], *, what: str, timeout_s: float, daemons: Iterable[Daemon] = (), remedy: str = ""
) -> T:
    """What `probe` answers, as soon as that is neither empty nor false.

    Args:
        probe: asked every `INTERVAL_S`; at least once.
        what: the thing waited for, for the message.
        timeout_s: seconds until the wait is given up.
        daemons: who must live for this to happen. The death of one ends the wait with the end of its log.
        remedy: the next step when the time is over.

    Raises:
        LabError: the time is over, or a daemon died.
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
                why=f"waited {timeout_s:g} s in vain",
                remedy=remedy or (f"read {logs}" if logs else "run `python -m lab doctor`"),
            )
        time.sleep(INTERVAL_S)
