"""HTTP/1.1 over TLS with connections that stay open: as many requests as the server answers, each one timed.

A protocol of its own instead of a client library, because the client shares two processors with what it measures.
"""

import asyncio
import ssl
import time


class _Connection(asyncio.Protocol):
    """Sends the same request again as soon as the answer is complete."""

    def __init__(self, request: bytes, count: int) -> None:
        self.seconds: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._count = count
        self._answer = b""
        self._begin = 0.0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport
            self._send()

    def data_received(self, data: bytes) -> None:
        """Go on when the answer is complete."""
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self.seconds.append(time.perf_counter() - self._begin)
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(f"the server answers {head.splitlines()[0].decode()}")
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
        if self._transport is not None:
            self._begin = time.perf_counter()
            self._transport.write(self._request)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ConnectionError("the server tells no length")


def post(path: str, body: bytes, *, host: str, token: str = "") -> bytes:
    """Answer the bytes of a request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode() + body


async def load(
    request: bytes, *, host: str, port: int, connections: int, requests: int, tls: ssl.SSLContext | None, name: str = ""
) -> tuple[float, list[float]]:
    """Send `requests` over `connections`; answer the seconds that all took, and each of them.

    Raises:
        ConnectionError: an answer was no success, or a connection ended.
    """
    loop = asyncio.get_running_loop()
    each = max(requests // connections, 1)
    begin = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: _Connection(request, each), host, port, ssl=tls, server_hostname=name or None
        )
        for _ in range(connections)
    ]
    try:
        await asyncio.gather(*(protocol.done for _, protocol in made))
    finally:
        for transport, _ in made:
            transport.abort()
    return time.perf_counter() - begin, [seconds for _, protocol in made for seconds in protocol.seconds]
