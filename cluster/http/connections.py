"""Limits on the connections of a port: their number, and the time that a client may take.

aiohttp limits how long a connection may be idle. It leaves limits on the arrival of a request and on the reading of a
response to a proxy in front, which these processes do not have.
"""

import asyncio
import logging
from typing import Final, cast

import msgspec

log = logging.getLogger(__name__)

_PIECE: Final = 64 * 1024


class Timeouts(msgspec.Struct, frozen=True):
    """The limits of a port. A connection that exceeds one of the times, in seconds, is aborted.

    Attributes:
        handshake: the time for the TLS handshake, and for the TLS shutdown.
        request: the time from the first byte of a request to its last; no API server waits longer for a response.
        answer: the time to read each 64 KiB of a response that is larger than the buffers on the way.
        idle: the time without a request; longer than the 90 s of Go's clients, so that they close idle connections.
        connections: the number of connections. With TLS each takes some 55 KiB, and 700 KiB after it has sent a large
            body. Above this number the connection that was served least recently is aborted.
    """

    handshake: float = 10.0
    request: float = 30.0
    answer: float = 30.0
    idle: float = 120.0
    connections: int = 1200


DEFAULT_TIMEOUTS: Final = Timeouts()


class ConnectionTable:
    """The connections of one port, the least recently served first."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or DEFAULT_TIMEOUTS
        self._connections: dict[LimitedConnection, None] = {}

    @property
    def active(self) -> "tuple[LimitedConnection, ...]":
        """The present connections."""
        return tuple(self._connections)

    def admit(self, connection: "LimitedConnection") -> None:
        """Add a connection; if there are too many, abort the least recently served one that is not being served."""
        self._connections[connection] = None
        if len(self._connections) > self.timeouts.connections:
            longest = next((each for each in self._connections if not each.is_answering), connection)
            self.forget(longest)
            longest.abort("too many connections, and this one was idle for longest")

    def answered(self, connection: "LimitedConnection") -> None:
        """Record that a response was sent just now."""
        if connection in self._connections:
            self.forget(connection)
            self._connections[connection] = None

    def forget(self, connection: "LimitedConnection") -> None:
        """Remove a connection that is closed or was handed to another protocol."""
        self._connections.pop(connection, None)


class LimitedConnection(asyncio.Protocol):
    """A connection that is aborted if its client is too slow.

    Subclasses call `expect` when a request begins to arrive, and `arrived` when it is complete.

    Attributes:
        is_answering: whether a request is in progress.
    """

    _transport: asyncio.Transport

    def __init__(self, connections: ConnectionTable) -> None:
        """Belong to the table `connections` while connected."""
        self.is_answering = False
        self._table = connections
        self._request_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add the connection to the table."""
        self._transport = cast("asyncio.Transport", transport)  # a listener for streams creates no others
        self._table.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Remove the connection from the table."""
        self.leave()

    def pause_writing(self) -> None:
        """Start watching whether the client reads the response."""
        if self._response_timer is None:
            self._watch_reading()

    def resume_writing(self) -> None:
        """Stop watching whether the client reads the response."""
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None

    def expect(self) -> None:
        """Start the timer for the rest of a request, unless it runs."""
        if self._request_timer is None:
            self._request_timer = asyncio.get_running_loop().call_later(self._table.timeouts.request, self.abort)

    def arrived(self) -> None:
        """Stop the timer for the rest of a request."""
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def leave(self) -> None:
        """Stop all timers: the connection is closed, or another protocol takes it over."""
        self.arrived()
        LimitedConnection.resume_writing(self)
        self._table.forget(self)

    def abort(self, reason: str = "the client is too slow") -> None:
        """Close the connection at once, whatever is in progress."""
        log.info("connection aborted: %s", reason, extra={"client": str(self._transport.get_extra_info("peername"))})
        self._transport.abort()

    def _watch_reading(self, before: int | None = None) -> None:
        """Abort the connection unless the client read a piece of the `before` bytes that waited at the last call."""
        waiting = self._transport.get_write_buffer_size()
        if before is not None and before - waiting < _PIECE:
            self.abort()
        else:
            loop = asyncio.get_running_loop()
            self._response_timer = loop.call_later(self._table.timeouts.answer, self._watch_reading, waiting)
