"""HTTP listeners on aiohttp, with limits on everything that a slow client can delay."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import StreamReader, web, web_response
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from cluster.http.connections import ConnectionTable, LimitedConnection, Timeouts
from cluster.http.status import internal_error

_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""The logger for aiohttp, without a traceback for each client that sends invalid HTTP: such a client gets a 400."""

# The field Server of every answer, those to invalid HTTP included: aiohttp would name itself and Python's version, and
# its signals do not see the answers that it makes on its own.
vars(web_response)["SERVER_SOFTWARE"] = "tranche"

_SHUTDOWN_SECONDS: Final = 1.0  # responses take milliseconds; incomplete requests are not waited for
_BACKLOG: Final = 1024


class _Routed(LimitedConnection):
    """A connection whose requests aiohttp parses and routes."""

    def __init__(self, inner: asyncio.Protocol, connections: ConnectionTable) -> None:
        super().__init__(connections)
        self._inner = inner

    def begin(self, body: StreamReader) -> None:
        """Record that the headers of a request have arrived; its body is expected now."""
        self.is_answering = True
        self.expect()  # its first byte may have arrived together with the previous request
        body.on_eof(self.arrived)

    def end(self) -> None:
        """Record that a request is done; next comes another, or the rest of a body that is not read."""
        self.is_answering = False
        self._table.answered(self)

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
    timeouts: Timeouts | None = None,
) -> AsyncIterator[int]:
    """Serve the routes of an application while the block runs; yield the port, which the system chooses for 0.

    Raises:
        OSError: the port is in use, or the address is not one of this host.
    """
    connections = ConnectionTable(timeouts)
    async with (
        routing(application, connections) as protocols,
        accepting(protocols, connections, host=host, port=port, tls=tls) as bound,
    ):
        yield bound


@asynccontextmanager
async def routing(
    application: web.Application, connections: ConnectionTable
) -> AsyncIterator[Callable[[], asyncio.Protocol]]:
    """Yield a factory of protocols that serve the routes of an application; at the end all connections are closed.

    Compressed bodies are not decompressed: no intended client sends any, and a small one can expand to a huge one.
    """
    application.middlewares.insert(0, _guard)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_http_log,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=connections.timeouts.idle,
        auto_decompress=False,
    )
    await runner.setup()
    make = runner.server
    if make is None:
        raise RuntimeError("aiohttp's runner has no server after its setup")
    try:
        yield lambda: _Routed(make(), connections)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def accepting(
    protocols: Callable[[], asyncio.Protocol],
    connections: ConnectionTable,
    *,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    """Accept connections while the block runs; yield the port.

    Raises:
        OSError: the port is in use, or the address is not one of this host.
    """
    seconds = connections.timeouts.handshake if tls else None
    server = await asyncio.get_running_loop().create_server(
        protocols, host, port, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Track the request on its connection, and turn an unexpected exception into a reference to the log.

    A body that is declared larger than the application accepts is refused before any of it is read.
    """
    protocol = request.transport.get_protocol() if request.transport is not None else None
    connection = protocol if isinstance(protocol, _Routed) else None
    if connection is not None:
        connection.begin(request.content)
    try:
        if (request.content_length or 0) > request.client_max_size:
            return _too_large(request)
        return await handler(request)
    except web.HTTPException:
        raise
    except web.RequestPayloadError as error:
        return web.Response(status=400, text=f"the body cannot be read: {error}")
    except Exception as error:  # noqa: BLE001 -- every exception becomes a response
        if request.transport is None:
            return web.Response(status=400)  # the client is gone, perhaps before its request was complete
        body = internal_error(f"{request.method} {request.path}", error)
        return web.Response(status=500, body=body, content_type="application/json")
    finally:
        if connection is not None:
            connection.end()


def _too_large(request: web.Request) -> web.Response:
    text = f"the body has {request.content_length} bytes, {request.client_max_size} is the limit: send less"
    response = web.Response(status=413, text=text)
    response.force_close()
    return response
