"""The proxy: a network to both ends, over TLS, that does to requests what it is told."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from certs import x509
from chaos import proxy
from chaos.interference import Interference
from chaos.proxy import Proxy, context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BINDING = "/api/v1/namespaces/ns/pods/p/binding"
EVENT = b'{"type":"ADDED","object":{}}\n'
HOUR = timedelta(hours=1)


class Server:
    """An API server of which one sees what reached it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.arrived = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a watch event by event, a Binding with 201, the rest with what was sent."""
        body = await request.read()
        self.seen.append((request.method, request.raw_path, body))
        self.arrived.set()
        if "watch" in request.query:
            answer = web.StreamResponse()
            await answer.prepare(request)
            while event := await self.events.get():
                await answer.write(event)
            return answer
        status = 201 if request.path == BINDING else 200
        return web.Response(status=status, body=body, headers={"X-Who": request.headers.get("Authorization", "")})


class Way:
    """A client's way to the server."""

    def __init__(self, server: Server, through: Proxy, url: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.proxy = through
        self.url = url
        self.session = session

    async def bind(self) -> int:
        """Post a Binding; answer the status."""
        async with self.session.post(self.url + BINDING, data=b"{}") as answer:
            await answer.read()
            return answer.status

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[aiohttp.StreamReader]:
        """Watch; answer the events as they arrive."""
        async with self.session.get(f"{self.url}/api/v1/pods?watch=1") as answer:
            yield answer.content


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Files of an authority's certificate, and of a leaf with its key."""
    now = datetime.now(UTC)
    authority = x509.new_authority("test", lifetime=HOUR, now=now)
    leaf = x509.issue(authority, common_name="proxy", ip_addresses=("127.0.0.1",), lifetime=HOUR, now=now, server=True)
    files = tmp_path / "ca.crt", tmp_path / "tls.crt", tmp_path / "tls.key"
    for file, content in zip(files, (authority.certificate_pem, leaf.certificate_pem, leaf.key_pem), strict=True):
        file.write_bytes(content)
    return files


@pytest.fixture
async def way(certificate: tuple[Path, Path, Path]) -> AsyncIterator[Way]:
    """A client, the proxy before a server, and what both know of each other."""
    authority, leaf, key = map(str, certificate)
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    trusted = ssl.create_default_context(cafile=authority)
    shown = context(certificate=leaf, key=key)
    test_server = TestServer(application, host="127.0.0.1")
    await test_server.start_server(ssl=shown)
    through = Proxy(server=f"https://127.0.0.1:{test_server.port}", interference=Interference(Random(1)))  # noqa: S311
    port = unused_port()
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with through.listening(port, shown=shown, trusted=trusted), aiohttp.ClientSession(connector=connector) as it:
        yield Way(server, through, f"https://127.0.0.1:{port}", it)
        server.events.put_nowait(b"")
    await test_server.close()


async def test_what_is_asked_and_answered_passes_unchanged(way: Way) -> None:
    """Method, path, query, token and body there; status, headers and body back."""
    path = "/api/v1/pods/a%2Fb?fieldSelector=x%3Dy&limit=5"
    headers = {"Authorization": "Bearer secret"}
    async with way.session.put(way.url + path, data=b"body", headers=headers) as answer:
        assert (answer.status, await answer.read(), answer.headers["X-Who"]) == (200, b"body", "Bearer secret")
    assert way.server.seen == [("PUT", path, b"body")]
    assert await way.bind() == 201


async def test_a_watch_passes_event_by_event(way: Way) -> None:
    """None waits for the next one."""
    async with way.watch() as events:
        for _ in range(2):
            way.server.events.put_nowait(EVENT)
            assert await events.readline() == EVENT


async def test_the_answer_to_a_taken_binding_is_lost(way: Way) -> None:
    """The server has it, its sender hears nothing; counted."""
    way.proxy.interference.lost_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await way.bind()
    assert [path for _, path, _ in way.server.seen] == [BINDING]
    assert way.proxy.interference.counts["taken, its answer lost"] == 1


async def test_half_an_answer_to_a_taken_binding_is_none(way: Way) -> None:
    """Its sender sees the beginning and knows that it is not all."""
    way.proxy.interference.truncated_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await way.bind()
    assert [path for _, path, _ in way.server.seen] == [BINDING]


async def test_a_binding_that_is_cut_never_arrives(way: Way) -> None:
    """Its sender cannot tell that from a lost answer."""
    way.proxy.interference.cut_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await way.bind()
    assert way.server.seen == []


async def test_a_late_binding_arrives_though_its_sender_has_given_up(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """His connection is closed at once, and so long afterwards the server has it."""
    monkeypatch.setattr(proxy, "LATE_SECONDS", 0.05)
    way.proxy.interference.late_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await way.bind()
    async with asyncio.timeout(30):
        await way.server.arrived.wait()
    assert [path for _, path, _ in way.server.seen] == [BINDING]


async def test_a_storm_of_429_names_when_to_come_back(way: Way) -> None:
    """As an API server does that is busy; it never sees the request."""
    way.proxy.interference.busy = 1.0
    async with way.session.get(f"{way.url}/api") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert (await answer.json())["reason"] == "TooManyRequests"
    assert way.server.seen == []


async def test_a_truncated_watch_ends_in_the_middle_of_an_event(way: Way) -> None:
    """Half of it arrives, then the connection breaks."""
    async with way.watch() as events:
        way.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        assert way.proxy.truncate_watches() == 1
        way.server.events.put_nowait(EVENT)
        with pytest.raises(aiohttp.ClientError):
            await events.readline()


async def test_a_cut_connection_breaks_at_once(way: Way) -> None:
    """Nobody waits for a time limit."""
    async with way.watch() as events:
        way.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        assert way.proxy.cut_connections() == 1
        with pytest.raises(aiohttp.ClientError):
            await events.readline()


async def test_held_watches_end_in_order_and_requests_wait(way: Way) -> None:
    """Their client sees an ordinary end; what it asks next is answered after the release."""
    async with way.watch() as events:
        way.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        way.proxy.hold()
        assert await events.read() == b""
    asking = asyncio.create_task(way.bind())
    done, _ = await asyncio.wait((asking,), timeout=0.2)
    assert not done
    way.proxy.release()
    assert await asking == 201


async def test_slow_answers_come(way: Way) -> None:
    """By just so much later."""
    way.proxy.interference.delay_seconds = 0.2
    loop = asyncio.get_running_loop()
    begin = loop.time()
    assert await way.bind() == 201
    assert round(loop.time() - begin, 3) >= 0.2  # it counts whole milliseconds


async def test_late_events_come_in_order_while_requests_are_answered_at_once(way: Way) -> None:
    """A watch that lags behind what its client learns by asking."""
    way.proxy.interference.late_events_seconds = 0.3
    loop = asyncio.get_running_loop()
    async with way.watch() as events:
        begin = loop.time()
        way.server.events.put_nowait(EVENT)
        assert await way.bind() == 201
        assert await events.readline() == EVENT
        assert round(loop.time() - begin, 3) >= 0.3
