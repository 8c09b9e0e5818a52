"""Ports that somebody else holds are found before anything starts."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.layout import Layout, Port


def taken(layout: Layout, ports: Iterable[Port]) -> list[Port]:
    """Those of `ports` on which somebody listens, on 127.0.0.1 or on every address."""
    return [port for port in ports if _is_taken(layout.port(port))]


def require_free(layout: Layout, ports: Iterable[Port]) -> None:
    """Refuse to start where a port is taken.

    Raises:
        LabError: names the ports, who they are for, and how to move them.
    """
    if held := taken(layout, ports):
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
