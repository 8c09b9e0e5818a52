"""A container runtime's side of NRI on a socket, for what a real one does not do on request: close, split, refuse.

`tests/system/test_delivery.py` has the same plugin under a real containerd.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from agent.nri.messages_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    CreateContainerRequest,
    CreateContainerResponse,
    Pod,
    RegisterPluginRequest,
    Request,
    Response,
    StartContainerRequest,
    StateChangeEvent,
    Status,
    SynchronizeRequest,
    SynchronizeResponse,
)
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from google.protobuf.message import Message


class CreationRefused(Exception):  # noqa: N818
    """The plugin refused a container."""


class PlayedRuntime:
    """A runtime with at most one plugin, whose calls it answers, and which it calls."""

    def __init__(self, *, refuses: str = "", bytes_per_frame: int = 0) -> None:
        """Accept plugins, unless `refuses` is the error; `bytes_per_frame` splits messages."""
        self._refuses = refuses
        self._bytes_per_frame = bytes_per_frame
        self._plugins: asyncio.Queue[_PluginSide] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._sides: list[_PluginSide] = []

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[Self]:
        """Accept plugins while the block runs."""
        self._server = await asyncio.start_unix_server(self._accept, path)
        try:
            yield self
        finally:
            self._server.close()
            for side in self._sides:
                await side.closed()
            await asyncio.to_thread(path.unlink)

    async def plugin(self) -> _PluginSide:
        """Return the next plugin that registers."""
        return await asyncio.wait_for(self._plugins.get(), PATIENCE_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = _PluginSide(reader, writer, self._bytes_per_frame)
        self._sides.append(side)
        registration = await side.read_registration()
        status = Status(code=7, message=self._refuses) if self._refuses else None
        await side.send(2, 1, 2, Response(status=status).SerializeToString())
        if self._refuses:
            writer.close()
        side.name = registration.plugin_name
        self._plugins.put_nowait(side)


class _PluginSide:
    """A connected plugin, as its runtime sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_per_frame: int) -> None:
        self._reader = reader
        self._writer = writer
        self._bytes_per_frame = bytes_per_frame
        self._stream = -1
        self.name = ""

    async def read_registration(self) -> RegisterPluginRequest:
        return RegisterPluginRequest.FromString(Request.FromString(await self._read(2)).payload)

    async def configure(self) -> int:
        """Return the events to which the plugin subscribes."""
        request = ConfigureRequest(runtime_name="played", runtime_version="1")
        return ConfigureResponse.FromString(await self._call("Configure", request)).events

    async def synchronize(self, pods: list[Pod], containers: list[Container], *, more: bool = False) -> bool:
        """Send a part of what runs; return whether the plugin accepts more."""
        request = SynchronizeRequest(pods=pods, containers=containers, more=more)
        return SynchronizeResponse.FromString(await self._call("Synchronize", request)).more

    async def create(self, pod: Pod, container: Container) -> CreateContainerResponse:
        """Ask for a container that is about to be created.

        Raises:
            CreationRefused: with the plugin's message.
        """
        request = CreateContainerRequest(pod=pod, container=container)
        return CreateContainerResponse.FromString(await self._call("CreateContainer", request))

    async def start(self, pod: Pod, container: Container) -> None:
        """Say that a container is about to run.

        Raises:
            CreationRefused: with the plugin's message.
        """
        await self._call("StartContainer", StartContainerRequest(pod=pod, container=container))

    async def stop(self, pod: Pod, container: Container) -> None:
        """Say that a container has ended."""
        await self._call("StopContainer", StartContainerRequest(pod=pod, container=container))

    async def change(self, event: int, pod: Pod, container: Container) -> None:
        """Say what happened to a container, as runtimes before NRI 0.12 do."""
        await self._call("StateChange", StateChangeEvent(event=event, pod=pod, container=container))

    async def ready(self) -> None:
        """Configure and synchronize a plugin of a node on which nothing runs."""
        await self.configure()
        await self.synchronize([], [])

    async def send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        """Send a message, in frames of a few bytes if so asked."""
        message = struct.pack(">IIBB", len(payload), stream, kind, 0) + payload
        step = self._bytes_per_frame or len(message)
        for begin in range(0, len(message), step):
            part = message[begin : begin + step]
            self._writer.write(struct.pack(">II", connection, len(part)) + part)
        await self._writer.drain()

    async def send_raw(self, content: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(content)
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection, as a runtime that ends or drops the plugin."""
        self._writer.close()

    async def closed(self) -> None:
        """Close the connection, and wait until it is."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def closed_by_plugin(self) -> None:
        """Wait until the plugin has closed the connection."""
        assert await asyncio.wait_for(self._reader.read(), PATIENCE_S) == b""

    async def _call(self, method: str, message: Message) -> bytes:
        self._stream += 2
        request = Request(service="nri.pkg.api.v1alpha1.Plugin", method=method, payload=message.SerializeToString())
        await self.send(1, self._stream, 1, request.SerializeToString())
        response = Response.FromString(await self._read(1))
        if response.status.code:
            raise CreationRefused(response.status.message)
        return response.payload

    async def _read(self, connection: int) -> bytes:
        header = await asyncio.wait_for(self._reader.readexactly(18), PATIENCE_S)
        found, _, size, *_ = struct.unpack(">IIIIBB", header)
        assert found == connection
        return await self._reader.readexactly(size)
