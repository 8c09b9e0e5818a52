"""Slow clients: every port cuts them off, and serves other clients meanwhile."""

import asyncio
import ssl
from contextlib import suppress

import pytest

from cluster.http import connections
from cluster.http.connections import Timeouts
from tests.fuzz.conftest import HOST, Port

SHORT = Timeouts(handshake=0.6, request=0.6, answer=0.6, idle=1.2)
GIVE_UP = 15.0
BETWEEN = 0.02  # seconds from byte to byte: a client of this kind is never idle


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts, so that the tests are fast."""
    monkeypatch.setattr(connections, "DEFAULT_TIMEOUTS", SHORT)


def _head(path: str, *more: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: a", *more, "")).encode()


SLOW_REQUESTS = {
    "headers": (_head("/mutate"), b"X: y\r\n"),
    "one header": (_head("/mutate") + b"X: ", b"y"),
    "the body of a review": (_head("/mutate", "Content-Length: 100000") + b"\r\n", b" "),
    "the body of another path": (_head("/filter", "Content-Length: 100000") + b"\r\n", b" "),
    "a body that is not read": (_head("/nowhere", "Content-Length: 100000") + b"\r\n", b" "),
    "a manifest": (_head("/api/simulate-schedule", "Content-Length: 100000") + b"\r\n", b" "),
    "chunks": (_head("/mutate", "Transfer-Encoding: chunked") + b"\r\n", b"1\r\n \r\n"),
    "nothing": (b"", b""),
    "a body after an answer": (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + _head("/mutate", "Content-Length: 100000") + b"\r\n",
        b" ",
    ),
}


async def _hold(port: Port, first: bytes, then: bytes, *, tls: ssl.SSLContext | None) -> None:
    """Send `first`, then `then` repeatedly, until the server closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, port.number, ssl=tls)

    async def drip() -> None:
        with suppress(ConnectionError, ssl.SSLError):
            while True:
                writer.write(then)
                await writer.drain()
                await asyncio.sleep(BETWEEN)

    writer.write(first)
    dripping = asyncio.create_task(drip())
    try:
        with suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(GIVE_UP):
                await reader.read()
    finally:
        dripping.cancel()
        writer.transport.abort()


async def _hold_everywhere(ports: tuple[Port, ...], first: bytes, then: bytes) -> None:
    holders = [asyncio.create_task(_hold(port, first, then, tls=port.tls)) for port in ports for _ in range(5)]
    await asyncio.sleep(10 * BETWEEN)
    assert not any(holder.done() for holder in holders)
    for port in ports:
        assert await port.get() == 200
    await asyncio.gather(*holders)
    for port in ports:
        assert await port.get() == 200


@pytest.mark.parametrize("kind", SLOW_REQUESTS)
async def test_slow_sender_is_cut_off(webhook: tuple[Port, Port], scheduler: Port, kind: str) -> None:
    """This holds on the ports of reviews, of the extender and the API, and of metrics."""
    await _hold_everywhere((*webhook, scheduler), *SLOW_REQUESTS[kind])


@pytest.mark.parametrize(("first", "then"), [(b"", b""), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00")])
async def test_endless_handshake_is_cut_off(
    webhook: tuple[Port, Port], scheduler: Port, first: bytes, then: bytes
) -> None:
    """The client is silent, or sends its hello byte by byte."""
    ports = (webhook[0], scheduler)
    await asyncio.gather(*(_hold(port, first, then, tls=None) for port in ports))
    for port in ports:
        assert await port.get() == 200
