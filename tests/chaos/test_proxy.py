"""The proxy: to both ends it looks like a TLS network, and it disturbs requests by its rules."""

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
    """An API server that records the requests that reach it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.arrived = asyncio.Event()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Serve a watch event by event, respond 201 to a Binding, and echo any other request."""
        body = await request.read()
        self.seen.append((request.method, request.raw_path, body))
        self.arrived.set()
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            while event := await self.events.get():
                await response.write(event)
            return response
        status = 201 if request.path == BINDING else 200
        return web.Response(status=status, body=body, headers={"X-Who": request.headers.get("Authorization", "")})


class Client:
    """A client that reaches the server through the proxy."""

    def __init__(self, server: Server, through: Proxy, url: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.proxy = through
        self.url = url
        self.session = session

    async def bind(self) -> int:
        """Post a Binding; return the status."""
        async with self.session.post(self.url + BINDING, data=b"{}") as response:
            await response.read()
            return response.status

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[aiohttp.StreamReader]:
        """Watch, and yield the stream of events."""
        async with self.session.get(f"{self.url}/api/v1/pods?watch=1") as response:
            yield response.content


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Files with an authority's certificate, a leaf certificate, and its key."""
    now = datetime.now(UTC)
    authority = x509.new_authority("test", lifetime=HOUR, now=now)
    leaf = x509.issue(authority, common_name="proxy", ip_addresses=("127.0.0.1",), lifetime=HOUR, now=now, server=True)
    files = tmp_path / "ca.crt", tmp_path / "tls.crt", tmp_path / "tls.key"
    for file, content in zip(files, (authority.certificate_pem, leaf.certificate_pem, leaf.key_pem), strict=True):
        file.write_bytes(content)
    return files


@pytest.fixture
async def client(certificate: tuple[Path, Path, Path]) -> AsyncIterator[Client]:
    """A client, and the proxy in front of a server."""
    authority, leaf, key = map(str, certificate)
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.respond)
    trusted = ssl.create_default_context(cafile=authority)
    shown = context(certificate=leaf, key=key)
    test_server = TestServer(application, host="127.0.0.1")
    await test_server.start_server(ssl=shown)
    through = Proxy(server=f"https://127.0.0.1:{test_server.port}", interference=Interference(Random(1)))  # noqa: S311
    port = unused_port()
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with through.listening(port, shown=shown, trusted=trusted), aiohttp.ClientSession(connector=connector) as it:
        yield Client(server, through, f"https://127.0.0.1:{port}", it)
        server.events.put_nowait(b"")
    await test_server.close()


async def test_requests_and_responses_pass_unchanged(client: Client) -> None:
    """Method, path, query, token and body pass to the server; status, headers and body pass back."""
    path = "/api/v1/pods/a%2Fb?fieldSelector=x%3Dy&limit=5"
    headers = {"Authorization": "Bearer secret"}
    async with client.session.put(client.url + path, data=b"body", headers=headers) as response:
        assert (response.status, await response.read(), response.headers["X-Who"]) == (200, b"body", "Bearer secret")
    assert client.server.seen == [("PUT", path, b"body")]
    assert await client.bind() == 201


async def test_watch_passes_event_by_event(client: Client) -> None:
    """No event waits for the next one."""
    async with client.watch() as events:
        for _ in range(2):
            client.server.events.put_nowait(EVENT)
            assert await events.readline() == EVENT


async def test_response_to_an_applied_binding_is_lost(client: Client) -> None:
    """The server gets the Binding, its sender gets no response, and the loss is counted."""
    client.proxy.interference.lost_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await client.bind()
    assert [path for _, path, _ in client.server.seen] == [BINDING]
    assert client.proxy.interference.counts["applied, response lost"] == 1


async def test_truncated_response_to_a_binding_is_an_error(client: Client) -> None:
    """The sender receives the beginning and notices that the rest is missing."""
    client.proxy.interference.truncated_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await client.bind()
    assert [path for _, path, _ in client.server.seen] == [BINDING]


async def test_cut_binding_never_arrives(client: Client) -> None:
    """Its sender cannot distinguish that from a lost response."""
    client.proxy.interference.cut_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await client.bind()
    assert client.server.seen == []


async def test_late_binding_arrives_after_its_sender_gave_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender's connection is closed at once; the Binding reaches the server `LATE_SECONDS` later."""
    monkeypatch.setattr(proxy, "LATE_SECONDS", 0.05)
    client.proxy.interference.late_bindings = 1.0
    with pytest.raises(aiohttp.ClientError):
        await client.bind()
    async with asyncio.timeout(30):
        await client.server.arrived.wait()
    assert [path for _, path, _ in client.server.seen] == [BINDING]


async def test_429_has_a_retry_after_header(client: Client) -> None:
    """A busy API server sends one; the request never reaches the server."""
    client.proxy.interference.busy = 1.0
    async with client.session.get(f"{client.url}/api") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (await response.json())["reason"] == "TooManyRequests"
    assert client.server.seen == []


async def test_truncated_watch_ends_in_the_middle_of_an_event(client: Client) -> None:
    """Half of the event arrives, then the connection breaks."""
    async with client.watch() as events:
        client.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        assert client.proxy.truncate_watches() == 1
        client.server.events.put_nowait(EVENT)
        with pytest.raises(aiohttp.ClientError):
            await events.readline()


async def test_cut_connection_breaks_at_once(client: Client) -> None:
    """The client does not wait for a time limit."""
    async with client.watch() as events:
        client.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        assert client.proxy.cut_connections() == 1
        with pytest.raises(aiohttp.ClientError):
            await events.readline()


async def test_held_watches_end_cleanly_and_requests_wait(client: Client) -> None:
    """The client observes an ordinary end of the watch; its next request gets its response after `release`."""
    async with client.watch() as events:
        client.server.events.put_nowait(EVENT)
        assert await events.readline() == EVENT
        client.proxy.hold()
        assert await events.read() == b""
    binding = asyncio.create_task(client.bind())
    done, _ = await asyncio.wait((binding,), timeout=0.2)
    assert not done
    client.proxy.release()
    assert await binding == 201


async def test_slow_responses_arrive(client: Client) -> None:
    """They are delayed by the configured time."""
    client.proxy.interference.delay_seconds = 0.2
    loop = asyncio.get_running_loop()
    begin = loop.time()
    assert await client.bind() == 201
    assert round(loop.time() - begin, 3) >= 0.2  # it counts whole milliseconds


async def test_late_events_arrive_in_order_while_responses_are_not_delayed(client: Client) -> None:
    """The watch lags behind the responses that its client gets."""
    client.proxy.interference.late_events_seconds = 0.3
    loop = asyncio.get_running_loop()
    async with client.watch() as events:
        begin = loop.time()
        client.server.events.put_nowait(EVENT)
        assert await client.bind() == 201
        assert await events.readline() == EVENT
        assert round(loop.time() - begin, 3) >= 0.3
