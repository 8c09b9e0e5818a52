"""The webhook's connection, fed in pieces: it serves each review and hands any other request over."""

import asyncio
from typing import Any

from cluster.http.connections import ConnectionTable, Timeouts
from fuzz.world import ALLOCATION, CLAIMS, WEBHOOK
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.review_protocol import ReviewConnection
from webhook.routes import Health

_ADMISSION = Admission(
    allocation=ALLOCATION,
    settings=WEBHOOK,
    metrics=Metrics(),
    quotas=lambda _: Quotas(),
    claims=CLAIMS,
    memberships=None,
    bindings=None,
)
_PIECES = (1, 7, 100, 1500)
_READY = Health()
_READY.ready = True
_CONNECTIONS = ConnectionTable(Timeouts(request=1e6, idle=1e6))


class _Wire(asyncio.Transport):
    """A transport that records what is written and which protocol reads."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class _Others(asyncio.Protocol):
    """The protocol that takes over; it records what it receives."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


def try_bytes(data: bytes) -> None:
    """Send `data` at once, and in pieces whose size depends on its length."""
    asyncio.run(_try(data))


async def _try(data: bytes) -> None:
    for size in (len(data) or 1, _PIECES[len(data) % len(_PIECES)]):
        answered: list[bytes] = []
        wire, others = _Wire(), _Others()
        made = _connection(wire, others, answered)
        for begin in range(0, len(data), size):
            reader = wire.protocol or made
            assert isinstance(reader, asyncio.Protocol)
            reader.data_received(data[begin : begin + size])
        assert wire.written.count(b"HTTP/1.1 ") >= len(answered)
        assert b"HTTP/1.1 500" not in wire.written
        assert all(body in data for body in answered)
        assert data.endswith(others.received)
        made.connection_lost(None)


def _connection(wire: _Wire, others: _Others, answered: list[bytes]) -> ReviewConnection:
    def answer(body: bytes) -> bytes:
        answered.append(body)
        return _ADMISSION.answer(body)

    made = ReviewConnection(answer=answer, fallback=lambda: others, health=_READY, connections=_CONNECTIONS)
    made.connection_made(wire)
    return made
