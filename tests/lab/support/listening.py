"""Listeners that take ports from a lab."""

from __future__ import annotations

import socket

from lab.layout import PORT_BLOCK, Port


def listen(port: int) -> socket.socket | None:
    """Return a socket that listens on `port`, or None if the port is taken."""
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        listener.close()
        return None
    return listener


def free_block() -> int:
    """Return a base port whose lab ports are all free, above the ports that Linux assigns."""
    for base in range(61000, 64000, PORT_BLOCK):
        listeners = [listen(base + port) for port in Port]
        for listener in listeners:
            if listener is not None:
                listener.close()
        if None not in listeners:
            return base
    raise AssertionError("no block of free ports from 61000 to 64000")
