"""A port of ours, with clients that are slow, vanish, send what is no HTTP, or ask for what breaks."""

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

from cluster.guests import Patience
from cluster.listener import listening

SHORT = Patience(handshake=0.5, request=0.5, answer=0.5, idle=1.0)
SECRET = "password of the database"  # noqa: S105 -- no secret
LARGE = 64 * 2**20
GIVE_UP = 20.0


async def echo(request: web.Request) -> web.Response:
    """Answer the body."""
    return web.Response(body=await request.read())


async def fail(_request: web.Request) -> web.Response:
    """Do what nobody foresaw."""
    raise KeyError(SECRET)


async def large(_request: web.Request) -> web.Response:
    """Answer more than any buffer between us holds."""
    return web.Response(body=bytes(LARGE))


async def work(request: web.Request) -> web.Response:
    """Take longer than a request may take to arrive."""
    await request.read()
    await asyncio.sleep(2 * SHORT.request)
    return web.Response(text="done")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Listen while a test runs."""
    app = web.Application(client_max_size=2**20)
    app.add_routes([web.post("/echo", echo), web.get("/fail", fail), web.get("/large", large), web.post("/work", work)])
    async with listening(app, host="127.0.0.1", port=0, patience=SHORT) as found:
        yield found


async def ask(port: int, text: bytes) -> bytes:
    """Send `text`, and answer all that comes until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        async with asyncio.timeout(GIVE_UP):
            return await reader.read()
    finally:
        writer.close()


async def test_a_defect_is_told_by_reference_only(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A Status with 500; what went wrong stands in the log, under the same reference."""
    with caplog.at_level(logging.ERROR):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/fail") as answer:
            text = await answer.text()
    assert answer.status == 500
    told = json.loads(text)
    assert (told["kind"], told["status"], told["code"], told["reason"]) == ("Status", "Failure", 500, "InternalError")
    assert SECRET not in text
    assert "Traceback" not in text
    [record] = [each for each in caplog.records if hasattr(each, "reference")]
    assert record.reference in told["message"]
    assert SECRET in caplog.text


async def test_the_same_in_the_debug_mode_of_the_loop(port: int) -> None:
    """In which aiohttp by itself would tell the client."""
    asyncio.get_running_loop().set_debug(True)
    app = web.Application()
    app.add_routes([web.get("/fail", fail)])
    try:
        async with listening(app, host="127.0.0.1", port=0) as found:
            said = await ask(found, b"GET /fail HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    finally:
        asyncio.get_running_loop().set_debug(False)
    assert b" 500 " in said
    assert SECRET.encode() not in said
    assert b"Traceback" not in said


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
async def test_what_is_no_http_is_a_bad_request(port: int, text: bytes) -> None:
    """Foreign bytes, lengths that are none, two framings at once, headers without end: 4xx, and nothing of ours."""
    said = await ask(port, text)
    assert said.startswith(b"HTTP/1.")
    assert said.split()[1][:1] == b"4"
    assert b"Traceback" not in said
    assert b".py" not in said


async def test_a_small_body_does_not_become_a_huge_one(port: int) -> None:
    """What is compressed stays so: a megabyte of it could have been a gigabyte."""
    sent = zlib.compress(bytes(2**24))
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: {len(sent)}\r\n"
    said = await ask(port, head.encode() + b"Connection: close\r\n\r\n" + sent)
    assert b" 200 " in said
    assert said.endswith(sent)


async def test_who_goes_away_in_the_middle_is_no_defect(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The log stays without a traceback, and the next is answered."""
    with caplog.at_level(logging.ERROR):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()
        said = await ask(port, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    assert said.endswith(b"ok")
    assert not caplog.records


async def test_who_does_not_read_is_cut_off(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that nobody takes is not kept for ever."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    received = 0
    with caplog.at_level(logging.INFO, "cluster.guests"):
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(GIVE_UP):
            while "too slow" not in caplog.text:  # noqa: ASYNC110 -- a log has no event
                await asyncio.sleep(0.05)
    with suppress(ConnectionError):
        while chunk := await reader.read(2**20):
            received += len(chunk)
    writer.close()
    assert received < LARGE


async def test_who_reads_at_his_own_pace_gets_all(port: int) -> None:
    """The time is for each piece, not for the whole."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/large") as answer:
        assert len(await answer.read()) == LARGE


async def test_long_work_is_not_slowness(port: int) -> None:
    """Once a request is here, its answer may take as long as it takes, and the connection serves on."""
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(f"http://127.0.0.1:{port}/work", data=b"x") as answer:
                assert await answer.text() == "done"


async def test_requests_one_behind_the_other_are_all_answered(port: int) -> None:
    """Sent without waiting; the second arrives while the first is worked on."""
    one = b"POST /work HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
    last = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\ny"
    said = await ask(port, one + last)
    assert said.count(b" 200 ") == 2


async def test_in_a_crowd_the_quietest_makes_room() -> None:
    """Not who is being answered, nor who was answered last; who comes is let in."""
    app = web.Application()
    app.add_routes([web.post("/echo", echo), web.post("/work", work)])
    crowded = msgspec.structs.replace(SHORT, request=30.0, idle=60.0, connections=3)
    async with listening(app, host="127.0.0.1", port=0, patience=crowded) as port:
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


async def test_idle_connections_end(port: int) -> None:
    """After their time, whether or not they ever asked."""
    assert await ask(port, b"") == b""
    assert b" 200 " in await ask(port, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
