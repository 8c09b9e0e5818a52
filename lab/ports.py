"""Ports that somebody else holds are found before anything starts."""

from __future__ import annotations

import errno
import socket
import time
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.wait import INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.layout import Layout, Port


_GRACE_S = 2.0


def taken(layout: Layout, ports: Iterable[Port]) -> list[Port]:
    """Those of `ports` on which somebody listens, on 127.0.0.1 or on every address."""
    return [port for port in ports if _is_taken(layout.port(port))]


def require_free(layout: Layout, ports: Iterable[Port]) -> None:
    """Refuse to start where a port is taken, and stays so.

    A process that was killed holds its ports for a moment after it has gone from the process table's view of it.

    Raises:
        LabError: names the ports, who they are for, and how to move them.
    """
    held = taken(layout, ports)
    deadline = time.monotonic() + _GRACE_S
    while held and time.monotonic() < deadline:
        time.sleep(INTERVAL_S)
        held = taken(layout, held)
    if held:
        names = ", ".join(f"{layout.port(port)} for {port.label}" for port in held)
        raise LabError(
            f"port {names}",
            why="another process listens there",
            remedy=f"stop it, or move the lab with --base-port (LAB_BASE_PORT), now {layout.base_port}",
        )


def _is_taken(number: int) -> bool:
    with socket.socket() as probe:
        # Connections that a stopped server left in TIME_WAIT do not take the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False
