"""A load generator for HTTP/1.1 over keep-alive connections, with or without TLS; it times each request.

It does not use a client library, because the client shares two processors with the server that it measures.
It can drive any webhook or extender: `python -m benchmarks.http_load --help`.
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
    """Sends the next request as soon as the response is complete, and starts over after the last one."""

    _transport: asyncio.WriteTransport

    def __init__(self, requests: Sequence[bytes], count: int) -> None:
        self.seconds: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._count = count
        self._response = b""
        self._begin = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.WriteTransport", transport)  # a stream connection has one
        self._send()

    def data_received(self, data: bytes) -> None:
        """Send the next request when the response is complete."""
        response = self._response = self._response + data if self._response else data
        end = response.find(b"\r\n\r\n") + 4
        if end < 4 or len(response) - end < _length(response[:end]):
            return
        self.seconds.append(time.perf_counter() - self._begin)
        if not response.startswith(b"HTTP/1.1 200"):
            self._fail(
                f"the server responded {response.splitlines()[0].decode()}: {response[end : end + 200].decode()}"
            )
        elif len(self.seconds) < self._count:
            self._response = b""
            self._send()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if responses are missing."""
        self._fail(f"the server closed the connection ({exc})")

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(why))

    def _send(self) -> None:
        self._begin = time.perf_counter()
        self._transport.write(self._requests[len(self.seconds) % len(self._requests)])


def _length(head: bytes) -> int:
    _, separator, rest = head.lower().partition(b"content-length:")
    if not separator:
        raise ConnectionError("the response has no Content-Length")
    return int(rest.partition(b"\r\n")[0])


def post(path: str, body: bytes, *, host: str, token: str = "") -> bytes:
    """Return the bytes of a request with a JSON body."""
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
    """Send `requests` requests over `connections`; return the total seconds, and the seconds of each request.

    `request` and `more` are sent in turn; each connection starts with a different one.

    Raises:
        ConnectionError: a response was not 200, or the server closed a connection.
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
    """Post bodies to a server repeatedly; print requests per second and latencies."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_load", description=main.__doc__)
    parser.add_argument("--url", required=True, help="https://HOST:PORT/PATH, or http://")
    parser.add_argument("--body", required=True, type=Path, nargs="+", help="JSON files, sent in turn")
    parser.add_argument(
        "--ca",
        type=Path,
        help="PEM file of the authority that signed the server's certificate (default: the system's authorities)",
    )
    parser.add_argument(
        "--name", default="", help="server name in the certificate, if it differs from the host of --url"
    )
    parser.add_argument("--token", type=Path, help="file with the bearer token to send")
    parser.add_argument("--connections", type=int, default=32, metavar="N", help="open connections (%(default)s)")
    parser.add_argument("--requests", type=int, default=10_000, metavar="N", help="requests in total (%(default)s)")
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
