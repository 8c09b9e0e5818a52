"""A port that is listened on: HTTP by aiohttp, with an end to everything that a client may be slow at."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from cluster import defects
from cluster.guests import Guest, Patience, Room

_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""aiohttp's, without a traceback for each client that sends what is no HTTP: it is answered 400, and is no defect."""

_SHUTDOWN_SECONDS: Final = 1.0  # answers take milliseconds; who has not sent all of a request by now is not waited for
_BACKLOG: Final = 1024


class _Routed(Guest):
    """A connection whose requests aiohttp reads and routes."""

    def __init__(self, inner: asyncio.Protocol, room: Room) -> None:
        super().__init__(room)
        self._inner = inner

    def begin(self, body: StreamReader) -> None:
        """Note that a request's headers are here; what is waited for from now on is its body."""
        self.is_answering = True
        self.expect()  # its first byte may have come with the request before
        body.on_eof(self.arrived)

    def end(self) -> None:
        """Note that a request is answered: what comes next is another, or the rest of a body that nobody reads."""
        self.is_answering = False
        self._room.answered(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.is_answering:
            self.expect()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._inner.connection_lost(exc)


@asynccontextmanager
async def listening(
    application: web.Application,
    *,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None = None,
    patience: Patience | None = None,
) -> AsyncIterator[int]:
    """Serve the routes of an application while the block runs; answers the port, which 0 leaves open.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    room = Room(patience)
    async with (
        routing(application, room) as protocols,
        accepting(protocols, room, host=host, port=port, tls=tls) as bound,
    ):
        yield bound


@asynccontextmanager
async def routing(application: web.Application, room: Room) -> AsyncIterator[Callable[[], asyncio.Protocol]]:
    """Answer what makes the protocol of a connection by the routes of an application; at the end all are closed.

    Compressed bodies are left as they are: no client of ours sends any, and a small one may become a huge one.
    """
    application.middlewares.insert(0, _answering)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_http_log,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=room.patience.idle,
        auto_decompress=False,
    )
    await runner.setup()
    make = runner.server
    if make is None:
        raise RuntimeError("a runner that is set up has a server")
    try:
        yield lambda: _Routed(make(), room)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def accepting(
    protocols: Callable[[], asyncio.Protocol], room: Room, *, host: str | None, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[int]:
    """Accept connections while the block runs; answers the port.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    seconds = room.patience.handshake if tls else None
    server = await asyncio.get_running_loop().create_server(
        protocols, host, port, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@web.middleware
async def _answering(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a defect of ours with a reference to the log, and nothing of what it says there."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    connection = protocol if isinstance(protocol, _Routed) else None
    if connection is not None:
        connection.begin(request.content)
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except web.RequestPayloadError as error:
        return web.Response(status=400, text=f"the body cannot be read: {error}")
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
        if request.transport is None:
            return web.Response(status=400)  # who asked is gone, perhaps in the middle of his request
        body = defects.told(f"{request.method} {request.path}", error)
        return web.Response(status=500, body=body, content_type="application/json")
    finally:
        if connection is not None:
            connection.end()
