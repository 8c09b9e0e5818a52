"""A plugin of a container runtime (NRI), which gives containers CDI devices and variables: containerd's side is real.

Protocol: https://github.com/containerd/nri, pkg/net/multiplex and pkg/api/api.proto, over ttrpc. One socket carries two
connections: on the first the runtime calls the plugin, on the second the plugin registers itself.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_PLUGIN, _RUNTIME = 1, 2  # connections
_REQUEST, _RESPONSE = 1, 2  # types of ttrpc messages
_CREATE_CONTAINER = 1 << (4 - 1)


class DeviceError(Exception):
    """The plugin refuses to create a container."""


class NriPlugin:
    """A registered plugin; use it as a context manager.

    It is called with the pod's annotations, the container's name and its environment. `devices` returns CDI names, by
    the environment after `variables` has returned what is set in it.
    """

    def __init__(
        self,
        path: Path,
        devices: Callable[[Mapping[str, str], str, Mapping[str, str]], Sequence[str]],
        variables: Callable[[Mapping[str, str], str], Mapping[str, str]] = lambda _annotations, _container: {},
    ) -> None:
        self._path = path
        self._devices = devices
        self._variables = variables
        self._socket = socket.socket(socket.AF_UNIX)
        self._buffers = {_PLUGIN: b"", _RUNTIME: b""}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="NRI plugin")

    def __enter__(self) -> Self:
        """Connect, and return when the runtime has synchronized its state with the plugin."""
        self._socket.connect(str(self._path))
        self._thread.start()
        registration = _text(1, "test") + _text(2, "10")
        request = _text(1, "nri.pkg.api.v1alpha1.Runtime") + _text(2, "RegisterPlugin") + _bytes(3, registration)
        self._send(_RUNTIME, 1, _REQUEST, request)
        assert self._ready.wait(PATIENCE_S), "the runtime did not accept the plugin"
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._socket.close()

    def _serve(self) -> None:
        for connection, stream, kind, payload in self._messages():
            if connection == _PLUGIN and kind == _REQUEST:
                answer = self._answer(payload)
                with contextlib.suppress(OSError):  # the test has ended: a container that cannot start is tried again
                    self._send(_PLUGIN, stream, _RESPONSE, answer)

    def _messages(self) -> Iterator[tuple[int, int, int, bytes]]:
        with contextlib.suppress(OSError, EOFError):
            while True:
                connection, length = struct.unpack(">II", self._read(8))
                buffer = self._buffers[connection] + self._read(length)
                while len(buffer) >= 10:
                    size, stream, kind, _ = struct.unpack(">IIBB", buffer[:10])
                    if len(buffer) < 10 + size:
                        break
                    yield connection, stream, kind, buffer[10 : 10 + size]
                    buffer = buffer[10 + size :]
                self._buffers[connection] = buffer

    def _answer(self, payload: bytes) -> bytes:
        """Return the response to a call; field 1 of it is an error, field 2 the result."""
        request = _fields(payload)
        method, body = request[2][0].decode(), request.get(3, [b""])[0]
        match method:
            case "Configure":
                return _bytes(2, bytes([2 << 3, _CREATE_CONTAINER]))
            case "Synchronize":
                self._ready.set()
            case "CreateContainer":
                try:
                    return _bytes(2, _bytes(1, self._adjustment(body)))
                except DeviceError as error:
                    return _bytes(1, bytes([1 << 3, 2]) + _text(2, str(error)))
        return _bytes(2, b"")

    def _adjustment(self, body: bytes) -> bytes:
        request = _fields(body)
        pod, container = _fields(request[1][0]), _fields(request[2][0])
        pairs = [_fields(entry) for entry in pod.get(6, [])]
        annotations = {pair[1][0].decode(): pair.get(2, [b""])[0].decode() for pair in pairs}
        environment = dict(entry.decode().split("=", 1) for entry in container.get(8, []))
        name = container[3][0].decode()
        variables = self._variables(annotations, name)
        devices = self._devices(annotations, name, {**environment, **variables})
        set_variables = b"".join(_bytes(4, _text(1, key) + _text(2, value)) for key, value in variables.items())
        return set_variables + b"".join(_bytes(8, _text(1, device)) for device in devices)

    def _read(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            part = self._socket.recv(count - len(content))
            if not part:
                raise EOFError
            content += part
        return content

    def _send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        message = struct.pack(">IIBB", len(payload), stream, kind, 0) + payload
        self._socket.sendall(struct.pack(">II", connection, len(message)) + message)


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Return the fields with a length of a protobuf message, by number; numbers among the fields are skipped."""
    fields: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        value, position = _varint(message, position)
        if key & 7 == 2:
            fields.setdefault(key >> 3, []).append(message[position : position + value])
            position += value
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _bytes(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode())
