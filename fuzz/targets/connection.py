"""A connection of an API server, in pieces: each review is answered, and what is no plain review is handed over."""

import asyncio
from typing import Any

from cluster.guests import Patience, Room
from fuzz.world import ALLOCATION, WEBHOOK
from webhook.admission import Admission
from webhook.connection import Connection
from webhook.metrics import Metrics
from webhook.routes import Health

_ADMISSION = Admission(allocation=ALLOCATION, settings=WEBHOOK, metrics=Metrics(), quotas=lambda _: {})
_PIECES = (1, 7, 100, 1500)
_READY = Health()
_READY.ready = True
_ROOM = Room(Patience(request=1e6, idle=1e6))


class _Wire(asyncio.Transport):
    """Keeps what is written, and who reads on."""

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
    """Takes what is handed over."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


def try_bytes(data: bytes) -> None:
    """Send `data` whole, and in pieces of a size that it chooses itself."""
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


def _connection(wire: _Wire, others: _Others, answered: list[bytes]) -> Connection:
    def answer(body: bytes) -> bytes:
        answered.append(body)
        return _ADMISSION.answer(body)

    made = Connection(answer=answer, others=lambda: others, health=_READY, room=_ROOM)
    made.connection_made(wire)
    return made
