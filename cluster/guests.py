"""The clients of a port: how long each may take for what, and for how many there is room.

aiohttp bounds how long a connection may be idle. How long a request may take to arrive, and its answer to be read, it
leaves to a proxy in front, and in front of us there is none.
"""

import asyncio
import logging
from typing import Final, cast

import msgspec

log = logging.getLogger(__name__)

_PIECE: Final = 64 * 1024


class Patience(msgspec.Struct, frozen=True):
    """How many seconds a client has, after which its connection is cut, and for how many clients there is room.

    Attributes:
        handshake: for TLS, and for its farewell.
        request: from the first byte of a request to its last; no API server waits longer for an answer.
        answer: for each 64 KiB of an answer that is larger than the buffers on the way.
        idle: without a request; longer than the 90 s of Go's clients, so that they, not we, end what is not used.
        connections: at once on one port. With TLS each takes some 55 KiB, and 700 once it has sent a large body; of
            more, the one that was answered least recently is cut.
    """

    handshake: float = 10.0
    request: float = 30.0
    answer: float = 30.0
    idle: float = 120.0
    connections: int = 1200


PATIENCE: Final = Patience()
"""Of every port, unless said otherwise."""


class Room:
    """The clients that are connected to one port, in the order of when they were last answered."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or PATIENCE
        self._guests: dict[Guest, None] = {}

    @property
    def guests(self) -> "tuple[Guest, ...]":
        """Who is connected now."""
        return tuple(self._guests)

    def welcome(self, guest: "Guest") -> None:
        """Let somebody in; where there are too many, who was quiet for longest and is not being answered leaves."""
        self._guests[guest] = None
        if len(self._guests) > self.patience.connections:
            longest = next((each for each in self._guests if not each.is_answering), guest)
            self.forget(longest)
            longest.cut("a client was quiet for longest, and there are too many")

    def answered(self, guest: "Guest") -> None:
        """Note that somebody was answered just now."""
        if guest in self._guests:
            self.forget(guest)
            self._guests[guest] = None

    def forget(self, guest: "Guest") -> None:
        """Note that somebody is gone, or somebody else's guest."""
        self._guests.pop(guest, None)


class Guest(asyncio.Protocol):
    """A connection that is cut where its client takes too long.

    Who extends it says when a request has begun to arrive (`expect`) and when all of it is here (`arrived`).

    Attributes:
        is_answering: whether a request is being answered.
    """

    _transport: asyncio.Transport

    def __init__(self, room: Room) -> None:
        """Count in `room` while connected."""
        self.is_answering = False
        self._room = room
        self._request: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter."""
        self._transport = cast("asyncio.Transport", transport)  # a listener for streams makes no others
        self._room.welcome(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Leave."""
        self.leave()

    def pause_writing(self) -> None:
        """Look after what is sent and not read."""
        if self._answer is None:
            self._watch_reading()

    def resume_writing(self) -> None:
        """Look after it no longer."""
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def expect(self) -> None:
        """Wait for the rest of a request, but not for ever."""
        if self._request is None:
            self._request = asyncio.get_running_loop().call_later(self._room.patience.request, self.cut)

    def arrived(self) -> None:
        """Wait no longer."""
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def leave(self) -> None:
        """End every wait: the connection is closed, or another protocol has it from now on."""
        self.arrived()
        Guest.resume_writing(self)
        self._room.forget(self)

    def cut(self, why: str = "a client was too slow") -> None:
        """End the connection at once, whatever is under way."""
        log.info("%s: cut off", why, extra={"client": str(self._transport.get_extra_info("peername"))})
        self._transport.abort()

    def _watch_reading(self, before: int | None = None) -> None:
        """Cut, unless a piece of what waits to be sent, `before` a while ago, has been read meanwhile."""
        waits = self._transport.get_write_buffer_size()
        if before is not None and before - waits < _PIECE:
            self.cut()
        else:
            loop = asyncio.get_running_loop()
            self._answer = loop.call_later(self._room.patience.answer, self._watch_reading, waits)
