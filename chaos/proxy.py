"""A proxy of ours between one process and kube-apiserver, which speaks TLS to both and spoils what passes at will.

It shows a certificate of the lab's authority and passes the process's own token on, so that to both ends nothing is
there but a network that misbehaves.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from yarl import URL

from chaos.interference import LATE_SECONDS, Fate, Interference, Stage

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"})
_TOO_MANY = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429}


@dataclass(eq=False)
class _Exchange:
    """One request under way."""

    request: web.BaseRequest
    is_truncated: bool = False

    @property
    def is_watch(self) -> bool:
        """Whether its answer goes on until somebody ends it."""
        return "watch" in self.request.query

    @property
    def is_binding(self) -> bool:
        """Whether it binds a pod."""
        return self.request.method == "POST" and self.request.path.endswith("/binding")

    def abort(self) -> web.StreamResponse:
        """Close the connection as a network does that breaks; what is answered goes nowhere."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()


class Proxy:
    """The way of one process to the API server.

    Attributes:
        interference: what is done to its traffic.
    """

    def __init__(self, *, server: str, interference: Interference) -> None:
        """Stand before `server`, a URL."""
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
        """Listen while the block runs: `shown` is what clients see, `trusted` what the API server must be."""
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3)
        runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout) as self._session:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=shown).start()
            try:
                yield
            finally:
                self.cut_connections()
                await runner.cleanup()

    # ---- faults of a moment; those that last are `interference` ----------------------------------------------------

    def cut_connections(self) -> int:
        """Close every connection on which something is under way; answer how many."""
        for exchange in self._open:
            exchange.abort()
        return len(self._open)

    def truncate_watches(self) -> int:
        """Pass half of the next piece of every watch and close it; answer how many there are."""
        watches = [exchange for exchange in self._open if exchange.is_watch]
        for exchange in watches:
            exchange.is_truncated = True
        return len(watches)

    def hold(self) -> None:
        """End every watch as a server does that has come to its time limit, and keep what is asked next waiting."""
        self._free.clear()
        self._ending.set()
        self._ending = asyncio.Event()

    def release(self) -> None:
        """Let go on who is waiting."""
        self._free.set()

    # ---- the way of a request --------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = _Exchange(request)
        self._open.add(exchange)
        try:
            return await self._answer(exchange, await request.read())
        except (aiohttp.ClientError, ConnectionError):
            return exchange.abort()  # the API server is away, or the process is
        finally:
            self._open.discard(exchange)

    async def _answer(self, exchange: _Exchange, body: bytes) -> web.StreamResponse:
        request, ending = exchange.request, self._ending
        await self._free.wait()
        fate = self.interference.fate(is_binding=exchange.is_binding)
        if fate is Fate.BUSY:
            self._count(fate)
            return web.json_response(_TOO_MANY, status=429, headers={"Retry-After": "1"})
        if exchange.is_binding:
            self.interference.passes(Stage.ASKED)
        if fate in (Fate.CUT, Fate.LATE):
            self._count(fate)
            if fate is Fate.LATE:
                self._send_later(request, body)
            return exchange.abort()
        async with self._send(request, body) as upstream:
            await asyncio.sleep(self.interference.delay_seconds)
            if exchange.is_binding:
                self.interference.passes(Stage.ANSWERED)
            if fate in (Fate.LOSE, Fate.TRUNCATE) and upstream.status == 201:
                self._count(fate)
                if fate is Fate.LOSE:
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
        answer = web.StreamResponse(status=upstream.status)
        for name, value in upstream.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                answer.headers.add(name, value)
        if upstream.content_length is not None:
            answer.content_length = upstream.content_length
        await answer.prepare(exchange.request)
        while chunk := await _next(upstream, ending if exchange.is_watch else None):
            if exchange.is_watch and (upstream.status == 410 or b'"code":410' in chunk):
                self.interference.counts["410"] += 1
            if exchange.is_watch and self.interference.late_events_seconds:
                await asyncio.sleep(self.interference.late_events_seconds)
            if exchange.is_truncated:
                if exchange.is_watch:
                    self.interference.counts["watch truncated"] += 1
                await answer.write(chunk[: len(chunk) // 2])
                return exchange.abort()
            await answer.write(chunk)
        await answer.write_eof()
        return answer

    def _count(self, fate: Fate) -> None:
        self.interference.counts[fate.value] += 1


async def _next(upstream: aiohttp.ClientResponse, ending: asyncio.Event | None) -> bytes:
    """Answer the next piece of an answer, nothing at its end, or, of a watch, when it is told to end."""
    if ending is None:
        return await upstream.content.readany()
    reading, told = asyncio.ensure_future(upstream.content.readany()), asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((reading, told), return_when=asyncio.FIRST_COMPLETED)
        return await reading if reading.done() else b""
    finally:
        reading.cancel()
        told.cancel()


def context(*, certificate: str, key: str) -> ssl.SSLContext:
    """Answer what a proxy shows."""
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(certificate, key)
    return shown
