"""Check for ports that another process uses, before a process starts."""

from __future__ import annotations

import errno
import socket
import time
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.listeners import listener
from lab.wait import INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.layout import Layout, Port


_GRACE_S = 2.0


def taken(layout: Layout, ports: Iterable[Port]) -> list[Port]:
    """Return those of `ports` on which a process listens, on 127.0.0.1 or on every address."""
    return [port for port in ports if _is_taken(layout.port(port))]


def still_taken(layout: Layout, ports: Iterable[Port]) -> list[Port]:
    """Return those of `ports` that are still taken after a grace period.

    A killed process keeps its ports for a moment after it has left the process table.
    """
    held = taken(layout, ports)
    deadline = time.monotonic() + _GRACE_S
    while held and time.monotonic() < deadline:
        time.sleep(INTERVAL_S)
        held = taken(layout, held)
    return held


def require_free(
    layout: Layout, ports: Iterable[Port], *, remedy: str = "run `make down`, then `make up`, which chooses free ports"
) -> None:
    """Refuse to start if a port is taken.

    Args:
        layout: the lab.
        ports: the ports that are about to be used.
        remedy: the next step if the other process cannot be stopped.

    Raises:
        LabError: a port is taken; the message has its purpose, the process that listens there, and the next step.
    """
    if held := still_taken(layout, ports):
        raise LabError(f"ports of the lab in {layout.root}", why=describe(layout, held), remedy=f"stop it, or {remedy}")


def describe(layout: Layout, held: Iterable[Port]) -> str:
    """Return each taken port with its purpose in the lab and the process that listens there."""
    return ", ".join(
        f"port {number} for {port.label} is taken by {listener(number)}"
        for port in held
        for number in (layout.port(port),)
    )


def _is_taken(number: int) -> bool:
    with socket.socket() as probe:
        # Connections of a stopped server in TIME_WAIT do not occupy the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False
