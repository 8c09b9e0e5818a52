"""Connections to a port of a pod through the API server, as `kubectl port-forward` makes them.

Each connection is a WebSocket to `pods/portforward` with the protocol v4.channel.k8s.io of the kubelet: a message
begins with its channel, 0 for the bytes of the connection and 1 for an error in words, and the first message of a
channel is the number of the port. The kubelet connects to the pod's loopback interface.
"""

import asyncio
from typing import Final

import aiohttp

from cli.errors import CommandError, MissingRightError
from cluster.connection import Connection
from cluster.resource import PODS

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES: Final = 2
_CHUNK: Final = 64 * 1024
_HEARTBEAT_SECONDS: Final = 30.0
ROLE: Final = "the Role of docs/ui.md"


class PortForward:
    """Connections to one port of the pods of a namespace."""

    def __init__(self, connection: Connection, *, namespace: str, port: int) -> None:
        self._connection = connection
        self._namespace = namespace
        self._port = port

    async def carry(self, pod: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to a pod, and pass on what is read and received until either side closes the connection.

        Raises:
            MissingRightError: the user may not forward ports of pods.
            CommandError: the pod does not exist, does not listen on the port, or cannot be reached.
        """
        try:
            async with await self._open(pod) as socket:
                sending = asyncio.create_task(self._send(socket, reader))
                try:
                    await self._receive(pod, socket, writer)
                finally:
                    sending.cancel()
                    await asyncio.wait((sending,))
        except (OSError, aiohttp.ClientError) as error:
            raise CommandError(
                f"pod {self._namespace}/{pod}: the connection to its port {self._port} failed: {error}; try again"
            ) from None

    async def _open(self, pod: str) -> aiohttp.ClientWebSocketResponse:
        path = f"{PODS.path(namespace=self._namespace, name=pod)}/portforward?ports={self._port}"
        try:
            return await self._connection.session.ws_connect(
                self._connection.server + path,
                protocols=(_PROTOCOL,),
                headers=await self._connection.headers(),
                heartbeat=_HEARTBEAT_SECONDS,
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 403:
                raise MissingRightError(
                    verb="create", resource="pods/portforward", namespace=self._namespace, role=ROLE
                ) from None
            why = "it does not exist" if error.status == 404 else f"the API server responded {error.status}"
            raise CommandError(
                f"pod {self._namespace}/{pod}: port {self._port} cannot be forwarded: {why}; see 'kubectl get pods -n"
                f" {self._namespace}'"
            ) from None

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
        """Send what is read; after its end close the WebSocket, for the protocol has no half-closed connections."""
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(bytes((_DATA,)) + chunk)
        await socket.close()

    async def _receive(self, pod: str, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        announced = set[int]()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, content = message.data[0], message.data[1:]
            if channel not in announced:
                announced.add(channel)
                content = content[_PORT_BYTES:]
            if channel == _ERROR and content:
                raise CommandError(
                    f"pod {self._namespace}/{pod}: port {self._port} cannot be forwarded:"
                    f" {content.decode(errors='replace').strip()}"
                )
            if channel == _DATA and content:
                writer.write(content)
                try:
                    await writer.drain()
                except ConnectionError:  # whoever reads has gone, as a browser does that has what it wants
                    return
