"""What stands where a Service does: one address, behind it the replicas that are ready."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab import health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEAVING_S = 1.0
PROBE_S = 0.5


@dataclass
class Balancer:
    """Spreads connections over replicas, and notes what a replica reset or refused.

    Attributes:
        addresses: `HOST:PORT` of each replica.
        probes: the URL of each that answers 200 while it is ready; without these all are taken for ready.
        connections: how many there were.
        broken: what was wrong with each that was refused or reset.
    """

    addresses: tuple[str, ...]
    probes: tuple[str, ...] = ()
    connections: int = 0
    broken: list[str] = field(default_factory=list)
    _clients: set[asyncio.StreamWriter] = field(default_factory=set)
    _ready: tuple[str, ...] = ()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        """Listen while the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        probing = asyncio.create_task(self._probe())
        try:
            yield
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            server.close()
            for writer in self._clients:
                writer.transport.abort()

    async def _probe(self) -> None:
        """Learn who is ready, as a kubelet does for the endpoints of a Service."""
        while self.probes:
            answers = await asyncio.gather(*(asyncio.to_thread(health.probe, url) for url in self.probes))
            self._ready = tuple(address for address, ready in zip(self.addresses, answers, strict=True) if ready)
            await asyncio.sleep(PROBE_S)

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        among = self._ready or self.addresses
        address = among[self.connections % len(among)]
        self.connections += 1
        self._clients.add(answer)
        host, _, port = address.partition(":")
        try:
            replica, request = await asyncio.open_connection(host, int(port))
        except OSError as error:
            self.broken.append(f"{address}: {error!r}")
        else:
            gone = asyncio.Event()
            await asyncio.gather(_forward(client, request, gone), self._answer(replica, answer, gone, address))
        finally:
            self._clients.discard(answer)
            answer.close()

    async def _answer(
        self, replica: asyncio.StreamReader, answer: asyncio.StreamWriter, gone: asyncio.Event, address: str
    ) -> None:
        """Pass on what a replica answers; a reset harms nobody if the caller is leaving by himself."""
        try:
            while chunk := await replica.read(65536):
                answer.write(chunk)
                await answer.drain()
        except ConnectionError as error:
            try:
                await asyncio.wait_for(gone.wait(), LEAVING_S)
            except TimeoutError:
                self.broken.append(f"{address}: {error!r}")
        finally:
            answer.close()


async def _forward(client: asyncio.StreamReader, request: asyncio.StreamWriter, gone: asyncio.Event) -> None:
    with suppress(ConnectionError):
        while chunk := await client.read(65536):
            if not request.is_closing():
                request.write(chunk)
                with suppress(ConnectionError):
                    await request.drain()
    gone.set()
    request.close()
