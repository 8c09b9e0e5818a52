"""A port that is listened on: HTTP by aiohttp, with an end to everything that a client may be slow at.

aiohttp bounds how long a connection may be idle. How long a request may take to arrive, and its answer to be read, it
leaves to a proxy in front, and in front of us there is none.
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""aiohttp's, without a traceback for each client that sends what is no HTTP: it is answered 400, and is no defect."""


class Patience(msgspec.Struct, frozen=True):
    """How many seconds a client has, after which its connection is cut, and for how many clients there is room.

    Attributes:
        handshake: for TLS, and for its farewell.
        request: from the first byte of a request to its last; no API server waits longer for an answer.
        answer: for each 64 KiB of an answer that is larger than the buffers on the way.
        idle: without a request; longer than the 90 s of Go's clients, so that they, not we, end what is not used.
        connections: at once on one port. With TLS each takes some 270 KiB; of more, the one that was answered least
            recently is cut.
    """

    handshake: float = 10.0
    request: float = 30.0
    answer: float = 30.0
    idle: float = 120.0
    connections: int = 1200


PATIENCE: Final = Patience()
"""Of every port, unless said otherwise."""

_SHUTDOWN_SECONDS: Final = 1.0  # answers take milliseconds; who has not sent all of a request by now is not waited for
_BACKLOG: Final = 1024
_PIECE: Final = 64 * 1024


@asynccontextmanager
async def listening(
    application: web.Application,
    *,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None = None,
    patience: Patience | None = None,
) -> AsyncIterator[int]:
    """Serve while the block runs; answers the port, which 0 leaves open.

    Compressed bodies are left as they are: no client of ours sends any, and a small one may become a huge one.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    patience = patience or PATIENCE
    application.middlewares.insert(0, _answering)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_http_log,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=patience.idle,
        auto_decompress=False,
    )
    await runner.setup()
    make = runner.server
    if make is None:
        raise RuntimeError("a runner that is set up has a server")
    server: asyncio.Server | None = None
    guests: dict[_Connection, None] = {}
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(make(), patience, guests),
            host,
            port,
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=patience.handshake if tls else None,
            ssl_shutdown_timeout=patience.handshake if tls else None,
        )
        yield server.sockets[0].getsockname()[1]
    finally:
        if server is not None:
            server.close()
        await runner.cleanup()


class _Connection(asyncio.Protocol):
    """A connection, handed on to aiohttp's protocol, and cut where its client takes too long."""

    def __init__(self, inner: asyncio.Protocol, patience: Patience, guests: "dict[_Connection, None]") -> None:
        """Be one of `guests` while connected; they are in the order of when they were last answered."""
        self._guests = guests
        self._inner = inner
        self._patience = patience
        self._transport: asyncio.Transport | None = None
        self.is_answering = False
        self._request: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None

    def begin(self, body: StreamReader) -> None:
        """Note that a request's headers are here; what is waited for from now on is its body."""
        self.is_answering = True
        body.on_eof(self._arrived)

    def end(self) -> None:
        """Note that a request is answered: what comes next is another, or the rest of a body that nobody reads."""
        self.is_answering = False
        self._come_last()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._inner.connection_made(transport)
        self._come_last()
        if len(self._guests) > self._patience.connections:
            longest = next((each for each in self._guests if not each.is_answering), self)
            del self._guests[longest]
            longest.cut("a client was quiet for longest, and there are too many")

    def data_received(self, data: bytes) -> None:
        if self._request is None and not self.is_answering:
            self._request = asyncio.get_running_loop().call_later(self._patience.request, self.cut)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._answer is None:
            self._watch_reading()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._request, self._answer):
            if timer is not None:
                timer.cancel()
        self._guests.pop(self, None)
        self._inner.connection_lost(exc)

    def _come_last(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._guests.pop(self, None)
            self._guests[self] = None

    def _arrived(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _watch_reading(self, before: int | None = None) -> None:
        """Cut, unless a piece of what waits to be sent, `before` a while ago, has been read meanwhile."""
        waits = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if before is not None and before - waits < _PIECE:
            self.cut()
        else:
            loop = asyncio.get_running_loop()
            self._answer = loop.call_later(self._patience.answer, self._watch_reading, waits)

    def cut(self, why: str = "a client was too slow") -> None:
        """End the connection at once, whatever is under way."""
        if self._transport is not None:
            peer = str(self._transport.get_extra_info("peername"))
            log.info("%s: cut off", why, extra={"client": peer})
            self._transport.abort()


class _Status(msgspec.Struct, rename="camel"):
    """Kubernetes' word for what failed."""

    message: str
    reason: str = "InternalError"
    code: int = 500
    kind: str = "Status"
    api_version: str = "v1"
    status: str = "Failure"


@web.middleware
async def _answering(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a defect of ours with a reference to the log, and nothing of what it says there."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    connection = protocol if isinstance(protocol, _Connection) else None
    if connection is not None:
        connection.begin(request.content)
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except web.RequestPayloadError as error:
        return web.Response(status=400, text=f"the body cannot be read: {error}")
    except Exception:
        if request.transport is None:
            return web.Response(status=400)  # who asked is gone, perhaps in the middle of his request
        reference = secrets.token_hex(8)
        log.exception("%s %s was not answered", request.method, request.path, extra={"reference": reference})
        message = f"an internal error; the log of this process tells more under reference {reference}"
        return web.Response(status=500, body=msgspec.json.encode(_Status(message)), content_type="application/json")
    finally:
        if connection is not None:
            connection.end()
