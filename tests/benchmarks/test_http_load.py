"""The load generator, as a command against any server."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks import http_load

ROOT = Path(__file__).parents[2]


async def _driven(url: str, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "token").write_text("secret\n")
    bodies = []
    for name in ("one", "two"):
        bodies.append(tmp_path / name)
        bodies[-1].write_text(f'"{name}"')
    command = [sys.executable, "-m", "benchmarks.http_load", "--url", url, "--token", str(tmp_path / "token")]
    command += ["--body", *map(str, bodies), "--requests", "40", "--connections", "4", *more]
    return await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


async def test_every_body_is_sent_with_path_and_token(tmp_path: Path) -> None:
    """The bodies are sent in turn over all connections, as often as requested."""
    seen: list[tuple[str, str, str]] = []

    async def note(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers["Authorization"], await request.text()))
        return web.json_response({})

    application = web.Application()
    application.router.add_post("/filter", note)
    async with TestServer(application) as server:
        done = await _driven(str(server.make_url("/filter?timeout=1s")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a second, p50" in done.stdout
    assert "µs of CPU a request here" in done.stdout
    assert sorted(seen) == sorted(
        [("/filter?timeout=1s", "Bearer secret", f'"{each}"') for each in ("one", "two")] * 20
    )


async def test_error_response_ends_the_load(tmp_path: Path) -> None:
    """A rate of rejected requests would be meaningless."""
    async with TestServer(web.Application()) as server:
        done = await _driven(str(server.make_url("/filter")), tmp_path)
    assert done.returncode
    assert "the server responded HTTP/1.1 404 Not Found" in done.stderr


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", b"A: b\r\ncontent-length:12\r\nC: 1\r\n"]
)
def test_content_length_is_found_in_any_case(head: bytes) -> None:
    """Servers spell the header differently."""
    assert http_load._length(head) == 12
