"""The sockets of an HTTP session, so that none is open any more when the session has ended."""

import asyncio
import socket
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import aiohttp

_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.01


class Sockets:
    """Creates the sockets of a session and remembers them.

    To close a TLS connection, the event loop waits for the server's part. A connection whose request was cancelled is
    closed in this way, and the session does not wait for it: the event loop could not be closed meanwhile.
    """

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def create(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an address, as `aiohttp.TCPConnector` asks for one."""
        made = socket.socket(*address[:3])
        self._sockets.add(made)
        return made

    async def cut(self) -> None:
        """Cut the connections that are still being closed, and wait until they are."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                while still_open := [each for each in self._sockets if each.fileno() >= 0]:
                    for each in still_open:
                        with suppress(OSError):
                            each.shutdown(socket.SHUT_RDWR)
                    await asyncio.sleep(_PAUSE_SECONDS)
