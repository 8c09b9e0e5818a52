"""A TCP load balancer in place of a Service: one address for the replicas that are ready."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab import health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLOSING_S = 1.0
PROBE_S = 0.5


@dataclass
class Balancer:
    """Spreads connections over replicas, and records connections that a replica resets or refuses.

    Attributes:
        addresses: `HOST:PORT` of each replica.
        probes: the readiness URL of each replica; without URLs every replica counts as ready.
        connections: the number of connections so far.
        broken: the error of each connection that was refused or reset.
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
        """Update the ready replicas, as a kubelet does for the endpoints of a Service."""
        while self.probes:
            results = await asyncio.gather(*(asyncio.to_thread(health.probe, url) for url in self.probes))
            self._ready = tuple(address for address, ready in zip(self.addresses, results, strict=True) if ready)
            await asyncio.sleep(PROBE_S)

    async def _serve(self, client: asyncio.StreamReader, response: asyncio.StreamWriter) -> None:
        targets = self._ready or self.addresses
        address = targets[self.connections % len(targets)]
        self.connections += 1
        self._clients.add(response)
        host, _, port = address.partition(":")
        try:
            replica, request = await asyncio.open_connection(host, int(port))
        except OSError as error:
            self.broken.append(f"{address}: {error!r}")
        else:
            gone = asyncio.Event()
            await asyncio.gather(
                _forward_request(client, request, gone), self._forward_response(replica, response, gone, address)
            )
        finally:
            self._clients.discard(response)
            response.close()

    async def _forward_response(
        self, replica: asyncio.StreamReader, response: asyncio.StreamWriter, gone: asyncio.Event, address: str
    ) -> None:
        """Forward the response of a replica; a reset is harmless if the client is closing the connection."""
        try:
            while chunk := await replica.read(65536):
                response.write(chunk)
                await response.drain()
        except ConnectionError as error:
            try:
                await asyncio.wait_for(gone.wait(), CLOSING_S)
            except TimeoutError:
                self.broken.append(f"{address}: {error!r}")
        finally:
            response.close()


async def _forward_request(client: asyncio.StreamReader, request: asyncio.StreamWriter, gone: asyncio.Event) -> None:
    with suppress(ConnectionError):
        while chunk := await client.read(65536):
            if not request.is_closing():
                request.write(chunk)
                with suppress(ConnectionError):
                    await request.drain()
    gone.set()
    request.close()
