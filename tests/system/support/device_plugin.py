"""A device plugin that a test starts inside the real node, over the kubelet's gRPC API (v1beta1).

It advertises devices of `nvidia.com/gpu` and passes them to containers in environment variables, as NVIDIA's plugin
with time-slicing replicas does. It is run by its path inside the node's namespaces, where the kubelet's folder is a
different one. The messages are few and flat, so this file encodes their protobuf itself.
"""

from __future__ import annotations

import argparse
import os
import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = "tranche-test.sock"
RESOURCE = "nvidia.com/gpu"
_LENGTH_DELIMITED = 2


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message whose fields are all length-delimited."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, length = varint() >> 3, varint()
        yield number, message[position : position + length]
        position += length


def _entry(name: str, value: str) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, value.encode()))


class Plugin:
    """The service v1beta1.DevicePlugin."""

    def __init__(self, devices: int) -> None:
        self._devices = [f"replica-{index}" for index in range(devices)]

    def list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Send all devices once and keep the stream open, because its end means the end of the plugin."""
        yield b"".join(_field(1, _field(1, name.encode()) + _field(2, b"Healthy")) for name in self._devices)
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()

    def allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """Return, for each container, the environment with the devices that the kubelet chose."""
        responses = b""
        for _, container in _fields(request):
            names = ",".join(value.decode() for _, value in _fields(container))
            variables = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "PLUGIN_DEVICES")
            responses += _field(1, b"".join(_entry(variable, names) for variable in variables))
        return responses

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the methods of the service."""
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.list_and_watch),
                "Allocate": grpc.unary_unary_rpc_method_handler(self.allocate),
            },
        )


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", type=int)
    arguments = parser.parse_args()
    socket = FOLDER / SOCKET
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor())
    server.add_generic_rpc_handlers((Plugin(arguments.devices).handler(),))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    with grpc.insecure_channel(f"unix://{FOLDER / 'kubelet.sock'}") as channel:
        register = channel.unary_unary("/v1beta1.Registration/Register")
        register(_field(1, b"v1beta1") + _field(2, SOCKET.encode()) + _field(3, RESOURCE.encode()), timeout=10)
    server.wait_for_termination()


if __name__ == "__main__":
    os.umask(0o077)
    main()
