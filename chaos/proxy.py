"""A TLS proxy between one process and kube-apiserver that can disturb every request.

It presents a certificate of the lab's authority and passes the process's own token on, so that both ends observe only a
network that misbehaves.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from yarl import URL

from chaos.interference import LATE_SECONDS, Interference, Stage, Treatment
from cluster.sockets import Sockets

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"})
_TOO_MANY = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429}


@dataclass(eq=False)
class _Exchange:
    """One request in flight."""

    request: web.BaseRequest
    is_truncated: bool = False

    @property
    def is_watch(self) -> bool:
        """Whether the response is a watch, which continues until one end closes it."""
        return "watch" in self.request.query

    @property
    def is_binding(self) -> bool:
        """Whether the request binds a pod."""
        return self.request.method == "POST" and self.request.path.endswith("/binding")

    def abort(self) -> web.StreamResponse:
        """Close the connection as a broken network does; the returned response is never sent."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()


class Proxy:
    """The connection of one process to the API server.

    Attributes:
        interference: what the proxy does to the traffic.
    """

    def __init__(self, *, server: str, interference: Interference) -> None:
        """Forward requests to `server`, a URL."""
        self.interference = interference
        self._server = server
        self._session: aiohttp.ClientSession
        self._open: set[_Exchange] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def listening(self, port: int, *, shown: ssl.SSLContext, trusted: ssl.SSLContext) -> AsyncIterator[None]:
        """Listen while the block runs: `shown` has the proxy's certificate, `trusted` verifies the API server's."""
        sockets = Sockets()
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted, socket_factory=sockets.create)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3)
        server = web.Server(self._handle, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        try:
            async with aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=timeout
            ) as self._session:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", port, ssl_context=shown).start()
                try:
                    yield
                finally:
                    for each in server.connections:  # also those without a request
                        if each.transport is not None:
                            each.transport.abort()
                    await runner.cleanup()
        finally:
            await sockets.cut()

    # ---- momentary faults; lasting ones are rules of `interference` --------------------------------------------------

    def cut_connections(self) -> int:
        """Close every connection that has a request in flight; return their number."""
        for exchange in self._open:
            exchange.abort()
        return len(self._open)

    def truncate_watches(self) -> int:
        """Pass on half of the next chunk of every watch, then close it; return the number of watches."""
        watches = [exchange for exchange in self._open if exchange.is_watch]
        for exchange in watches:
            exchange.is_truncated = True
        return len(watches)

    def hold(self) -> None:
        """End every watch as a server does at its time limit, and delay all further requests until `release`."""
        self._free.clear()
        self._ending.set()
        self._ending = asyncio.Event()

    def release(self) -> None:
        """Let the delayed requests continue."""
        self._free.set()

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = _Exchange(request)
        self._open.add(exchange)
        try:
            return await self._respond(exchange, await request.read())
        except (aiohttp.ClientError, ConnectionError):
            return exchange.abort()  # the API server or the process is unavailable
        finally:
            self._open.discard(exchange)

    async def _respond(self, exchange: _Exchange, body: bytes) -> web.StreamResponse:
        request, ending = exchange.request, self._ending
        await self._free.wait()
        treatment = self.interference.treatment(is_binding=exchange.is_binding)
        if treatment is Treatment.BUSY:
            self._count(treatment)
            return web.json_response(_TOO_MANY, status=429, headers={"Retry-After": "1"})
        if exchange.is_binding:
            self.interference.reached(Stage.REQUEST)
        if treatment in (Treatment.CUT, Treatment.LATE):
            self._count(treatment)
            if treatment is Treatment.LATE:
                self._send_later(request, body)
            return exchange.abort()
        async with self._send(request, body) as upstream:
            if self.interference.delay_seconds:
                self.interference.counts["response delayed"] += 1
                await asyncio.sleep(self.interference.delay_seconds)
            if exchange.is_binding:
                self.interference.reached(Stage.RESPONSE)
            if treatment in (Treatment.LOSE, Treatment.TRUNCATE) and upstream.status == 201:
                self._count(treatment)
                if treatment is Treatment.LOSE:
                    return exchange.abort()
                exchange.is_truncated = True
            return await self._pass_on(exchange, upstream, ending)

    def _send(self, request: web.BaseRequest, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = URL(self._server + request.raw_path, encoded=True)
        return self._session.request(request.method, url, data=body or None, headers=headers)

    def _send_later(self, request: web.BaseRequest, body: bytes) -> None:
        async def send() -> None:
            await asyncio.sleep(LATE_SECONDS)
            with suppress(aiohttp.ClientError):
                async with self._send(request, body):
                    pass

        task = asyncio.create_task(send())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _pass_on(
        self, exchange: _Exchange, upstream: aiohttp.ClientResponse, ending: asyncio.Event
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=upstream.status)
        for name, value in upstream.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                response.headers.add(name, value)
        if upstream.content_length is not None:
            response.content_length = upstream.content_length
        await response.prepare(exchange.request)
        while chunk := await _next(upstream, ending if exchange.is_watch else None):
            if exchange.is_watch and (upstream.status == 410 or b'"code":410' in chunk):
                self.interference.counts["410"] += 1
            if exchange.is_watch and self.interference.late_events_seconds:
                self.interference.counts["event delayed"] += 1
                await asyncio.sleep(self.interference.late_events_seconds)
            if exchange.is_truncated:
                if exchange.is_watch:
                    self.interference.counts["watch truncated"] += 1
                await response.write(chunk[: len(chunk) // 2])
                return exchange.abort()
            await response.write(chunk)
        await response.write_eof()
        return response

    def _count(self, treatment: Treatment) -> None:
        self.interference.counts[treatment.value] += 1


async def _next(upstream: aiohttp.ClientResponse, ending: asyncio.Event | None) -> bytes:
    """Return the next chunk of a response, or nothing at its end or when `ending` is set, which ends a watch."""
    if ending is None:
        return await upstream.content.readany()
    reading, waiting = asyncio.ensure_future(upstream.content.readany()), asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        return await reading if reading.done() else b""
    finally:
        reading.cancel()
        waiting.cancel()


def context(*, certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context with which a proxy serves."""
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(certificate, key)
    return shown
