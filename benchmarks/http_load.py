"""HTTP/1.1 over TLS with connections that stay open: as many requests as the server answers, each one timed.

A protocol of its own instead of a client library, because the client shares two processors with what it measures.
As a command it drives any webhook or extender: `python -m benchmarks.http_load --help`.
"""

import argparse
import asyncio
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.results import percentile


class _Connection(asyncio.Protocol):
    """Sends the next of its requests as soon as the answer is complete, and begins again after the last."""

    _transport: asyncio.WriteTransport

    def __init__(self, requests: Sequence[bytes], count: int) -> None:
        self.seconds: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._count = count
        self._answer = b""
        self._begin = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.WriteTransport", transport)  # a connection for streams is no other
        self._send()

    def data_received(self, data: bytes) -> None:
        """Go on when the answer is complete."""
        answer = self._answer = self._answer + data if self._answer else data
        end = answer.find(b"\r\n\r\n") + 4
        if end < 4 or len(answer) - end < _length(answer[:end]):
            return
        self.seconds.append(time.perf_counter() - self._begin)
        if not answer.startswith(b"HTTP/1.1 200"):
            self._fail(f"the server answers {answer.splitlines()[0].decode()}: {answer[end : end + 200].decode()}")
        elif len(self.seconds) < self._count:
            self._answer = b""
            self._send()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so, if that was too early."""
        self._fail(f"the server closed the connection ({exc})")

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(why))

    def _send(self) -> None:
        self._begin = time.perf_counter()
        self._transport.write(self._requests[len(self.seconds) % len(self._requests)])


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    if not found:
        raise ConnectionError("the server tells no length")
    return int(rest.partition(b"\r\n")[0])


def post(path: str, body: bytes, *, host: str, token: str = "") -> bytes:
    """Answer the bytes of a request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode() + body


async def load(
    request: bytes,
    *more: bytes,
    host: str,
    port: int,
    connections: int,
    requests: int,
    tls: ssl.SSLContext | None,
    name: str = "",
) -> tuple[float, list[float]]:
    """Send `requests` over `connections`; answer the seconds that all took, and each of them.

    `more` are sent in turn with `request`; each connection begins with another one.

    Raises:
        ConnectionError: an answer was no success, or a connection ended.
    """
    loop = asyncio.get_running_loop()
    each = max(requests // connections, 1)
    turn = (request, *more)
    begin = time.perf_counter()
    made = []
    for number in range(connections):
        first = number * len(turn) // connections
        own = (*turn[first:], *turn[:first])
        made.append(
            await loop.create_connection(
                lambda own=own: _Connection(own, each),
                host,
                port,
                ssl=tls,
                server_hostname=name or None,
            )
        )
    try:
        await asyncio.gather(*(protocol.done for _, protocol in made))
    finally:
        for transport, _ in made:
            transport.abort()
    return time.perf_counter() - begin, [seconds for _, protocol in made for seconds in protocol.seconds]


def main() -> int:
    """Post bodies to a server, again and again, and print how many it answers and how long each takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_load", description=main.__doc__)
    parser.add_argument("--url", required=True, help="https://HOST:PORT/PATH, or http://")
    parser.add_argument("--body", required=True, type=Path, nargs="+", help="files of JSON, sent in turn")
    parser.add_argument("--ca", type=Path, help="PEM of who signed the server's certificate; else the system's")
    parser.add_argument("--name", default="", help="the name in that certificate, where it is not the URL's")
    parser.add_argument("--token", type=Path, help="a file with the bearer token to send")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    url = urlsplit(arguments.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        parser.error(f"--url is {arguments.url!r}; it must be https://HOST:PORT/PATH, or http://")
    is_tls, path = url.scheme == "https", (url.path or "/") + (f"?{url.query}" if url.query else "")
    token = arguments.token.read_text().strip() if arguments.token else ""
    posts = [post(path, body.read_bytes(), host=url.netloc, token=token) for body in arguments.body]
    begin = time.process_time()
    took, seconds = uvloop.run(
        load(
            *posts,
            host=url.hostname,
            port=url.port or (443 if is_tls else 80),
            connections=arguments.connections,
            requests=arguments.requests,
            tls=ssl.create_default_context(cafile=arguments.ca) if is_tls else None,
            name=arguments.name,
        )
    )
    own = (time.process_time() - begin) / len(seconds) * 1e6
    half, most = (percentile(seconds, percent) * 1e3 for percent in (50, 99))
    print(
        f"{len(seconds) / took:.0f} a second, p50 {half:.2f} ms, p99 {most:.2f} ms; {own:.0f} µs of CPU a request here"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
