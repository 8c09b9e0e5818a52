"""Listeners with clients that are slow, vanish, send invalid HTTP, or cause internal errors."""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import msgspec
import pytest
from aiohttp import web

from cluster.http.connections import Timeouts
from cluster.http.listener import listening

SHORT = Timeouts(handshake=0.5, request=0.5, answer=0.5, idle=1.0)
SECRET = "password of the database"  # noqa: S105 -- no secret
LARGE = 64 * 2**20
GIVE_UP = 20.0


async def echo(request: web.Request) -> web.Response:
    """Return the body of the request."""
    return web.Response(body=await request.read())


async def fail(_request: web.Request) -> web.Response:
    """Raise an unexpected exception."""
    raise KeyError(SECRET)


async def large(_request: web.Request) -> web.Response:
    """Return more than the buffers of the connection hold."""
    return web.Response(body=bytes(LARGE))


async def work(request: web.Request) -> web.Response:
    """Take longer than a request may take to arrive."""
    await request.read()
    await asyncio.sleep(2 * SHORT.request)
    return web.Response(text="done")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A port that is open while a test runs."""
    app = web.Application(client_max_size=2**20)
    app.add_routes([web.post("/echo", echo), web.get("/fail", fail), web.get("/large", large), web.post("/work", work)])
    async with listening(app, host="127.0.0.1", port=0, timeouts=SHORT) as bound:
        yield bound


async def ask(port: int, text: bytes) -> bytes:
    """Send `text`, and return everything that arrives until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        async with asyncio.timeout(GIVE_UP):
            return await reader.read()
    finally:
        writer.close()


async def test_internal_error_is_reported_by_reference_only(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The response is a Status with 500; the log has the details under the same reference."""
    with caplog.at_level(logging.ERROR):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/fail") as answer:
            text = await answer.text()
    assert answer.status == 500
    status = json.loads(text)
    assert (status["kind"], status["status"], status["code"], status["reason"]) == (
        "Status",
        "Failure",
        500,
        "InternalError",
    )
    assert SECRET not in text
    assert "Traceback" not in text
    [record] = [each for each in caplog.records if hasattr(each, "reference")]
    assert record.reference in status["message"]
    assert SECRET in caplog.text


async def test_internal_error_is_hidden_in_debug_mode(port: int) -> None:
    """Aiohttp alone would send the traceback to the client."""
    asyncio.get_running_loop().set_debug(True)
    app = web.Application()
    app.add_routes([web.get("/fail", fail)])
    try:
        async with listening(app, host="127.0.0.1", port=0) as bound:
            received = await ask(bound, b"GET /fail HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    finally:
        asyncio.get_running_loop().set_debug(False)
    assert b" 500 " in received
    assert SECRET.encode() not in received
    assert b"Traceback" not in received


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
    ids=range(8),
)
async def test_invalid_http_is_a_bad_request(port: int, text: bytes) -> None:
    """Other protocols, invalid lengths, two framings and endless headers get a 4xx without internal details."""
    received = await ask(port, text)
    assert received.startswith(b"HTTP/1.")
    assert received.split()[1][:1] == b"4"
    assert b"Traceback" not in received
    assert b".py" not in received


@pytest.mark.parametrize(
    "text",
    [
        b"no HTTP\r\n\r\n",
        b"GET /missing HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"GET /fail HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\n\r\n",
    ],
    ids=["invalid", "missing", "internal", "large"],
)
async def test_answer_does_not_name_the_software(port: int, text: bytes) -> None:
    """The versions of a server are what an attacker looks for first."""
    answer = await ask(port, text)
    assert answer.startswith(b"HTTP/1."), answer
    assert b"\r\nServer: tranche\r\n" in answer
    assert b"python" not in answer.lower()
    assert b"aiohttp" not in answer.lower()


async def test_body_that_is_declared_too_large_is_refused_at_once(port: int) -> None:
    """Before a byte of it has been sent; one that the application accepts is waited for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\n")
    async with asyncio.timeout(SHORT.request / 2):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read(200)
    assert head.startswith(b"HTTP/1.1 413")
    assert body == b"the body has 1000000000000 bytes, 1048576 is the limit: send less"
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT.request / 2):
            await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_compressed_body_is_not_decompressed(port: int) -> None:
    """A compressed megabyte could expand to a gigabyte."""
    sent = zlib.compress(bytes(2**24))
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: {len(sent)}\r\n"
    received = await ask(port, head.encode() + b"Connection: close\r\n\r\n" + sent)
    assert b" 200 " in received
    assert received.endswith(sent)


async def test_client_that_leaves_early_causes_no_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The log has no traceback, and the next client is served."""
    with caplog.at_level(logging.ERROR):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()
        received = await ask(
            port, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        )
    assert received.endswith(b"ok")
    assert not caplog.records


async def test_client_that_does_not_read_is_aborted(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A response that the client does not read is not kept forever."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    received = 0
    with caplog.at_level(logging.INFO, "cluster.http.connections"):
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(GIVE_UP):
            while "too slow" not in caplog.text:  # noqa: ASYNC110 -- a log has no event
                await asyncio.sleep(0.05)
    with suppress(ConnectionError):
        while chunk := await reader.read(2**20):
            received += len(chunk)
    writer.close()
    assert received < LARGE


async def test_client_that_reads_steadily_gets_everything(port: int) -> None:
    """The time limit applies to each piece, not to the whole response."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/large") as answer:
        assert len(await answer.read()) == LARGE


async def test_slow_handler_is_not_aborted(port: int) -> None:
    """After a request has arrived, its handler has no time limit, and the connection stays usable."""
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(f"http://127.0.0.1:{port}/work", data=b"x") as answer:
                assert await answer.text() == "done"


async def test_pipelined_requests_are_all_answered(port: int) -> None:
    """The second request arrives while the first is handled."""
    one = b"POST /work HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
    last = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\ny"
    received = await ask(port, one + last)
    assert received.count(b" 200 ") == 2


async def test_idlest_connection_is_aborted_when_there_are_too_many() -> None:
    """It is neither one with a request in progress nor the one that was served last; the new client is served."""
    app = web.Application()
    app.add_routes([web.post("/echo", echo), web.post("/work", work)])
    crowded = msgspec.structs.replace(SHORT, request=30.0, idle=60.0, connections=3)
    async with listening(app, host="127.0.0.1", port=0, timeouts=crowded) as port:
        readers, writers = zip(*[await asyncio.open_connection("127.0.0.1", port) for _ in range(3)], strict=True)
        writers[0].write(b"POST /work HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        writers[1].write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        async with asyncio.timeout(GIVE_UP):
            await readers[1].readuntil(b"\r\n\r\n")
            assert b" 200 " in await ask(port, b"POST /echo HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
            with suppress(ConnectionError):
                assert await readers[2].read() == b""
            assert b" 200 " in await readers[0].readuntil(b"\r\n\r\n")
        assert not readers[1].at_eof()
        for writer in writers:
            writer.close()


async def test_idle_connections_are_closed(port: int) -> None:
    """They are closed after the idle time, whether or not they ever sent a request."""
    assert await ask(port, b"") == b""
    assert b" 200 " in await ask(port, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
