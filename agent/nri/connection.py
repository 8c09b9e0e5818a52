"""The connection of a plugin to the container runtime: two connections of ttrpc over one socket.

The runtime calls the plugin on the first, the plugin registers itself on the second. Each frame of the socket begins
with the connection and a length; the contents of a connection's frames are messages with a header of ttrpc
(https://github.com/containerd/nri, pkg/net/multiplex; https://github.com/containerd/ttrpc).
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError, Message

from agent.nri.messages_pb2 import RegisterPluginRequest, Request, Response, Status
from agent.refusal import Refusal

_PLUGIN, _RUNTIME = 1, 2  # connections
_REQUEST, _RESPONSE = 1, 2  # kinds of messages
_FRAME: Final = struct.Struct(">II")
_HEADER: Final = struct.Struct(">IIBB")
_LARGEST_MESSAGE: Final = 4 << 20
"""ttrpc's own limit."""
_UNKNOWN: Final = 2
"""gRPC's code of an error that has no other; the runtime shows the message."""
_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"


class NriError(Exception):
    """The container runtime refused the plugin, or sent what the protocol does not allow."""


Answer = Callable[[str, bytes], Awaitable[Message]]
"""A function of the method and the encoded request of a call by the runtime."""


@dataclass(frozen=True, slots=True)
class _Message:
    connection: int
    stream: int
    kind: int
    payload: bytes


async def serve(path: Path, *, name: str, index: str, answer: Answer) -> None:
    """Register a plugin, and answer the runtime's calls until it closes the connection.

    Args:
        path: the runtime's socket for plugins.
        name: the plugin's name.
        index: two digits; the runtime calls plugins in the order of their indexes.
        answer: called for each request; a `Refusal` becomes an error.

    Raises:
        NriError: the runtime refused the plugin, or broke the protocol.
        OSError: there is no such socket, or the connection failed.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        registration = RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        request = Request(service=_SERVICE, method="RegisterPlugin", payload=registration.SerializeToString())
        await _send(writer, _Message(_RUNTIME, 1, _REQUEST, request.SerializeToString()))
        async for message in _messages(reader):
            match message.connection, message.kind:
                case (1, 1):
                    response = await _answer(message.payload, answer)
                    await _send(writer, _Message(_PLUGIN, message.stream, _RESPONSE, response.SerializeToString()))
                case (2, 2):
                    _check_registration(message.payload)
                case _:
                    raise NriError(f"message of kind {message.kind} on connection {message.connection}")
    except DecodeError as error:
        raise NriError(f"a message cannot be decoded: {error}") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer(payload: bytes, answer: Answer) -> Response:
    request = Request.FromString(payload)
    try:
        return Response(payload=(await answer(request.method, request.payload)).SerializeToString())
    except Refusal as refusal:
        return Response(status=Status(code=_UNKNOWN, message=str(refusal)))


def _check_registration(payload: bytes) -> None:
    status = Response.FromString(payload).status
    if status.code:
        raise NriError(f"registration refused: {status.message}")


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[_Message]:
    """Yield the messages of both connections; end when the runtime closes the socket.

    A frame may have a part of a message, or several.
    """
    buffers = {_PLUGIN: bytearray(), _RUNTIME: bytearray()}
    while frame := await _read(reader, _FRAME.size):
        connection, length = _FRAME.unpack(frame)
        buffer = buffers.get(connection)
        if buffer is None or length > _LARGEST_MESSAGE + _HEADER.size:
            raise NriError(f"a frame of {length} bytes on connection {connection}")
        buffer += await _read(reader, length)
        while len(buffer) >= _HEADER.size:
            size, stream, kind, _ = _HEADER.unpack_from(buffer)
            if size > _LARGEST_MESSAGE:
                raise NriError(f"a message of {size} bytes")
            end = _HEADER.size + size
            if len(buffer) < end:
                break
            yield _Message(connection, stream, kind, bytes(buffer[_HEADER.size : end]))
            del buffer[:end]


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    """Return `size` bytes, or none if the socket was closed."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return b""


async def _send(writer: asyncio.StreamWriter, message: _Message) -> None:
    content = _HEADER.pack(len(message.payload), message.stream, message.kind, 0) + message.payload
    writer.write(_FRAME.pack(message.connection, len(content)) + content)
    await writer.drain()
