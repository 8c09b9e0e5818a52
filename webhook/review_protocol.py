"""The HTTP protocol of reviews: answers a review in the event loop step that received its last byte.

API servers send reviews as one plain form of HTTP request. A general HTTP server takes longer to parse it into a
request object than admission takes to decide. Any other request, and all that follow it on the connection, are handed
over to a general server, `fallback`, together with the connection. So is a review that needs a GpuClaim to be read
first: the general server can wait.
"""

import asyncio
import re
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from cluster.http.connections import ConnectionTable, LimitedConnection
from cluster.http.status import internal_error
from webhook.claims import UncachedClaimError
from webhook.review import UnreadableReviewError
from webhook.routes import LARGEST_REVIEW, PATHS, Health

_head: Final = re.compile(
    rb"POST (?:%b)(?:\?[!-~]*)? HTTP/1\.1\r\n(?:[!-9;-~]+:[\t -~]*\r\n)+\r\n" % "|".join(PATHS).encode()
).match
_length: Final = re.compile(rb"\r\ncontent-length:[\t ]*([0-9]{1,9})[\t ]*\r\n").search
_special: Final = re.compile(
    rb"\r\n(?:transfer-encoding|content-encoding|expect|connection|upgrade):|\r\ncontent-length:.*\r\ncontent-length:",
    re.DOTALL,
).search


class ReviewConnection(LimitedConnection):
    """A connection of an API server, whose reviews are passed to `answer`.

    `answer` returns the response to a body. It may raise `UnreadableReviewError`, which is answered with 400, or
    `UncachedClaimError`, for which the connection is handed over.
    """

    def __init__(
        self,
        *,
        answer: Callable[[bytes], bytes],
        fallback: Callable[[], asyncio.Protocol],
        health: Health,
        connections: ConnectionTable,
    ) -> None:
        """Register in `connections` while the connection is open and not handed over."""
        super().__init__(connections)
        self._answer_review = answer
        self._fallback = fallback
        self._health = health
        self._parts: list[bytes] = []
        self._size = self._begin = self._end = 0
        self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the idle timer."""
        super().connection_made(transport)
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(self._table.timeouts.idle, self._close_if_idle)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def pause_writing(self) -> None:
        """Stop reading while the client does not read its responses."""
        super().pause_writing()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue reading."""
        super().resume_writing()
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Respond to the review once it is complete."""
        if not self._parts:
            begin, length = _find_body(data)
            if not begin:
                self._hand_over(data)
                return
            self._begin, self._end = begin, begin + length
            self._last = self._loop.time()
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._end:
            self.expect()
            return
        self.arrived()
        received = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        try:
            self._reply(received[self._begin : self._end])
        except UncachedClaimError:
            self._hand_over(received)
            return
        if len(received) > self._end:
            self._hand_over(received[self._end :])

    def close(self) -> None:
        """Close the connection after what is already written has been sent."""
        self._transport.close()

    def _reply(self, body: bytes) -> None:
        status, kind = HTTPStatus.OK, "application/json"
        try:
            content = self._answer_review(body)
        except UnreadableReviewError as error:
            status, kind, content = HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", str(error).encode()
        except UncachedClaimError:
            raise
        except Exception as error:  # noqa: BLE001 -- the client needs a response to every error
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, internal_error("a review", error)
        close = "" if self._health.ready else "Connection: close\r\n"
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
            f"Date: {_date(int(time.time()))}\r\n{close}\r\n"
        )
        self._transport.write(head.encode() + content)
        self._table.answered(self)
        if close:
            self.close()

    def _hand_over(self, data: bytes) -> None:
        self.leave()
        if self._transport.is_closing():
            return
        protocol = self._fallback()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def _close_if_idle(self) -> None:
        left = self._last + self._table.timeouts.idle - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = self._loop.call_later(left, self._close_if_idle)

    def leave(self) -> None:
        """Stop every timer: the connection is closed or handed over."""
        super().leave()
        self._timer.cancel()


def _find_body(data: bytes) -> tuple[int, int]:
    """Return start and length of the body of the review at the start of `data`, or 0, 0 for any other request."""
    head = _head(data)
    if head is None:
        return 0, 0
    fields = head[0].lower()
    length = _length(fields)
    if length is None or _special(fields) or int(length[1]) > LARGEST_REVIEW:
        return 0, 0
    return head.end(), int(length[1])


@lru_cache(2)
def _date(unix: int) -> str:
    return formatdate(unix, usegmt=True)
