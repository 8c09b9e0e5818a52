"""The protocol of review connections: fragmented reviews, other requests, errors and timeouts."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocation.claim import ClaimDevices, ClaimSpec
from allocation.settings import AllocationSettings
from certs.leaf import ServerNames
from certs.source import IssuedSource
from certs.x509 import new_authority
from cluster.http.connections import ConnectionTable, Timeouts
from tests.support.patience import PATIENCE_S
from tests.webhook.support.claims import Claims
from tests.webhook.test_server import review, trusting
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.review_protocol import ReviewConnection
from webhook.routes import Health
from webhook.server import serving
from webhook.settings import WebhookSettings

GO = "Host: h\r\nUser-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\nAccept-Encoding: gzip\r\n"


def request(body: bytes = review(), path: str = "/mutate?timeout=10s", more: str = "") -> bytes:
    """Return the bytes of a request as an API server sends them."""
    return f"POST {path} HTTP/1.1\r\n{GO}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Wire(asyncio.Transport):
    """A transport without a peer, which records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed, self.paused = asyncio.Event(), False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: bytes) -> None:  # type: ignore[override]
        """Record the data."""
        self.written += data

    def close(self) -> None:
        """Record the close."""
        self.closed.set()

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed.is_set()

    def pause_reading(self) -> None:
        """Record the pause."""
        self.paused = True

    def resume_reading(self) -> None:
        """Record the resumption."""
        self.paused = False

    def get_write_buffer_size(self) -> int:
        """Return 0: everything is written at once."""
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Record the new protocol."""
        self.protocol = protocol


class Other(asyncio.Protocol):
    """The fallback protocol, which records what it receives."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        """Record the data."""
        self.received += data


class World:
    """A connection, its transport and its fallback."""

    def __init__(self) -> None:
        self.wire, self.other, self.health, self.connections = Wire(), Other(), Health(), ConnectionTable()
        self.health.ready = True
        metrics = Metrics()
        self.claims = Claims({}, {"stored": ClaimSpec(ClaimDevices(1))})
        self.admission = Admission(
            allocation=AllocationSettings(),
            settings=WebhookSettings(),
            metrics=metrics,
            quotas=lambda _: Quotas(),
            claims=self.claims,
            memberships=None,
            bindings=None,
        )
        self.answer = self.admission.answer
        self.connection = ReviewConnection(
            answer=self._answered,
            fallback=lambda: self.other,
            health=self.health,
            connections=self.connections,
        )
        self.connection.connection_made(self.wire)

    def _answered(self, body: bytes) -> bytes:
        return self.answer(body)

    def receive(self, *parts: bytes) -> None:
        """Pass bytes to the protocol that owns the connection."""
        for part in parts:
            (self.other if self.wire.protocol else self.connection).data_received(part)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, len(request()) - 1), max_size=4), st.integers(1, 3))
async def test_review_may_arrive_in_any_fragments(cuts: list[int], count: int) -> None:
    """A review is answered once it is complete, or handed over where even its head arrives in parts."""
    world = World()
    bounds = [0, *sorted(set(cuts)), len(request())]
    for _ in range(count):
        world.receive(*(request()[begin:end] for begin, end in pairwise(bounds)))
    answered = world.wire.written.count(b"HTTP/1.1 200 OK\r\n")
    assert answered * len(request()) + len(world.other.received) == count * len(request())
    assert world.other.received == request() * (count - answered)
    if bounds[1] >= len(request()) - len(review()):
        assert answered == count


@pytest.mark.parametrize(
    "unusual",
    [
        request(path="/canary"),
        b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n",
        request(more="Transfer-Encoding: chunked\r\n"),
        request(more="Expect: 100-continue\r\n"),
        request(more="Connection: close\r\n"),
        request(more="content-length: 5\r\n"),
        request(more="A: b\r\n folded\r\n"),
        request().replace(b"1.1", b"1.0"),
        b"POST /mutate HTTP/1.1\r\nContent-Length: 8388609\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
async def test_other_requests_are_handed_over(unusual: bytes) -> None:
    """The fallback receives every byte of the request and all later bytes."""
    world = World()
    world.receive(request(), unusual, b"more")
    assert world.wire.written.count(b"HTTP/1.1") == 1
    assert world.other.received == unusual + b"more"
    assert not world.connections.active


async def test_pipelined_reviews_are_handed_over() -> None:
    """The first of several pipelined reviews is answered here, before the fallback gets the others."""
    world = World()
    world.receive(request() + request() + request())
    assert world.wire.written.count(b"HTTP/1.1 200 OK") == 1
    assert world.other.received == request() * 2


def with_claim(name: str) -> bytes:
    """Return the review of a pod that names a GpuClaim."""
    body = json.loads(review())
    body["request"]["namespace"] = "team"
    body["request"]["object"]["metadata"]["annotations"] = {"gpu.scheduling/claim": name}
    return json.dumps(body).encode()


async def test_review_that_needs_a_claim_to_be_read_is_handed_over() -> None:
    """The event loop serves other connections meanwhile; nothing is written, and the general server gets every byte."""
    world = World()
    sent = request(with_claim("stored"))
    world.receive(sent[:200], sent[200:] + b"more")
    assert not world.wire.written
    assert world.other.received == sent + b"more"
    assert world.claims.reads == []


async def test_general_server_reads_the_claim_and_closes(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """The API server then opens a connection that the fast protocol serves."""
    reader, writer = streams
    writer.write(request(with_claim("stored")))
    head, body = await _answer(reader)
    assert b"\r\nconnection: close\r\n" in head.lower()
    assert json.loads(body)["response"]["patchType"] == "JSONPatch"
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""


async def test_internal_error_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The response is 500 with a reference to the log, which has the traceback; the connection stays open."""
    world = World()
    world.answer = lambda body: bytes(1 // (len(body) - len(body)))
    world.receive(request())
    assert world.wire.written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert "ZeroDivisionError" in caplog.text
    assert b"under reference " in world.wire.written
    assert b"ZeroDivisionError" not in world.wire.written
    world.answer = world.admission.answer
    world.receive(request())
    assert b"HTTP/1.1 200 OK\r\n" in world.wire.written


async def test_reading_pauses_while_the_client_does_not_read() -> None:
    """Responses to a slow client do not accumulate."""
    world = World()
    world.connection.pause_writing()
    assert world.wire.paused
    world.connection.resume_writing()
    assert not world.wire.paused


async def test_draining_connection_closes_after_its_response() -> None:
    """The response has `Connection: close`, so the client connects to another replica."""
    world = World()
    world.health.ready = False
    world.receive(request())
    assert b"\r\nConnection: close\r\n" in world.wire.written
    assert world.wire.is_closing()


async def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed after the idle timeout, counted from the last review."""
    monkeypatch.setattr("cluster.http.connections.DEFAULT_TIMEOUTS", Timeouts(idle=0.05))
    world = World()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    world.receive(request())
    async with asyncio.timeout(PATIENCE_S):
        await world.wire.closed.wait()
    assert round(loop.time() - begin, 3) >= 0.05  # it counts whole milliseconds


@pytest.fixture
async def streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server over TLS."""
    signer, health, metrics = (
        new_authority("tests", lifetime=timedelta(days=1), now=datetime.now(UTC)),
        Health(),
        Metrics(),
    )
    health.ready = True
    own = WebhookSettings(host="127.0.0.1", port=0, metrics_port=0)
    admission = Admission(
        allocation=AllocationSettings(),
        settings=own,
        metrics=metrics,
        quotas=lambda _: Quotas(),
        claims=Claims({}, {"stored": ClaimSpec(ClaimDevices(1))}),
        memberships=None,
        bindings=None,
    )
    source = IssuedSource(signer, names=ServerNames(("localhost",)), now=datetime.now(UTC))
    async with serving(admission=admission, health=health, metrics=metrics, source=source, settings=own) as ports:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", ports.reviews, ssl=trusting(signer), server_hostname="localhost"
        )
        yield reader, writer
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None
        return head, await reader.readexactly(int(length[1]))


async def test_protocol_and_routes_give_equal_responses(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Reviews before the health request are answered by the protocol, the same reviews after it by the routes."""
    reader, writer = streams
    answers = []
    for each in (
        request(),
        request(b"{}"),
        request(path="/webhook"),
        b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n",
        request(),
        request(b"{}"),
    ):
        writer.write(each)
        answers.append(await _answer(reader))
    assert json.loads(answers[0][1])["response"]["allowed"]
    assert answers[3][1] == b"ok"
    for here, there in ((answers[0], answers[4]), (answers[1], answers[5])):
        assert here[1] == there[1]
        assert here[0].split(b"\r\n")[0] == there[0].split(b"\r\n")[0]
    assert answers[1][0].startswith(b"HTTP/1.1 400 Bad Request\r\n")
