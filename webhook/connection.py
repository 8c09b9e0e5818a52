"""A connection of an API server: a review is answered in the same step of the event loop that brought its last byte.

Reviews come as one plain kind of request, and a general HTTP server takes longer to make that request an object than
admission takes to decide. Whatever is not of that kind, or comes behind something that is not, is handed over to such a
server, `others`, together with the connection.
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

from cluster import defects
from cluster.guests import Guest, Room
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


class Connection(Guest):
    """Answers reviews with what `answer` makes of their bodies; raises `UnreadableReviewError` where they are none."""

    def __init__(
        self,
        *,
        answer: Callable[[bytes], bytes],
        others: Callable[[], asyncio.Protocol],
        health: Health,
        room: Room,
    ) -> None:
        """Count in `room` for as long as it is open and not handed over."""
        super().__init__(room)
        self._decide = answer
        self._others = others
        self._health = health
        self._parts: list[bytes] = []
        self._size = self._begin = self._end = 0
        self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        super().connection_made(transport)
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(self._room.patience.idle, self._close_if_idle)
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def pause_writing(self) -> None:
        """Read no more from who does not read."""
        super().pause_writing()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Answer when the review is complete."""
        if not self._parts:
            begin, length = _review(data)
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
        self._reply(received[self._begin : self._end])
        if len(received) > self._end:
            self._hand_over(received[self._end :])

    def close(self) -> None:
        """Close it; what has been written still goes out."""
        self._transport.close()

    def _reply(self, body: bytes) -> None:
        status, kind = HTTPStatus.OK, "application/json"
        try:
            told = self._decide(body)
        except UnreadableReviewError as error:
            status, kind, told = HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", str(error).encode()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
            status, told = HTTPStatus.INTERNAL_SERVER_ERROR, defects.told("a review", error)
        leaving = "" if self._health.ready else "Connection: close\r\n"
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(told)}\r\n"
            f"Date: {_date(int(time.time()))}\r\n{leaving}\r\n"
        )
        self._transport.write(head.encode() + told)
        self._room.answered(self)
        if leaving:
            self.close()

    def _hand_over(self, data: bytes) -> None:
        self.leave()
        if self._transport.is_closing():
            return
        other = self._others()
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(data)

    def _close_if_idle(self) -> None:
        left = self._last + self._room.patience.idle - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = self._loop.call_later(left, self._close_if_idle)

    def leave(self) -> None:
        """Forget it."""
        super().leave()
        self._timer.cancel()


def _review(data: bytes) -> tuple[int, int]:
    """Answer where the body of the review that `data` begins with begins, and its length; 0, 0 where it is none."""
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
