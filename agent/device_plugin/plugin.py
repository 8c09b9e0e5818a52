"""The device plugin: stays registered with the kubelet, across restarts of either.

The end of the agent is the end of all devices to the kubelet: until it is back, the node takes no GPU pods, containers
that run keep their cards, and containers that would start wait (docs/device-plugin.md).
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from agent.device_plugin.calls import OPTIONS, Calls
from agent.device_plugin.devices import devices_of
from agent.device_plugin.messages_pb2 import Empty, RegisterRequest
from agent.device_plugin.node_view import NodeView
from agent.report import NodeReport
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_VERSION: Final = "v1beta1"
_ENDPOINT: Final = "tranche.sock"
_KUBELET: Final = "kubelet.sock"
_REGISTER: Final = "/v1beta1.Registration/Register"
_REGISTRATION_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_SILENT_PAUSES: Final = 10
"""Pauses for which a kubelet that accepted the plugin may not watch its devices."""


class DevicePlugin:
    """The agent as a device plugin of its node's kubelet."""

    def __init__(
        self,
        folder: Path,
        view: NodeView,
        *,
        resource: str,
        on_change: Callable[[], None],
        on_refused: Callable[[], None],
    ) -> None:
        """Serve the kubelet whose folder for device plugins this is.

        Args:
            folder: the kubelet's folder for the sockets of device plugins, and for its own.
            view: the node.
            resource: the extended resource that the kubelet advertises.
            on_change: called when `is_registered` may have changed.
            on_refused: called for each container that is refused.
        """
        self._folder = folder
        self._resource = resource
        self._calls = Calls(view, on_refused=on_refused, on_listener=on_change)
        self._problems = LogOnce()
        self._has_report = asyncio.Event()

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet watches this plugin's devices now."""
        return self._calls.listeners > 0

    def set_report(self, report: NodeReport) -> None:
        """Tell the kubelet the devices of the cards in the report."""
        self._calls.set_devices(devices_of(report.inventory.cards))
        self._has_report.set()

    async def run(self) -> None:
        """Stay registered until cancelled, from the first report on: without devices the kubelet would reject pods."""
        await self._has_report.wait()
        kubelet = str(self._folder / _KUBELET)
        while True:
            try:
                await self._serve()
                log.warning("the kubelet has restarted, or does not watch the devices; registering again")
            except OSError as error:
                self._problems.report(kubelet, str(error))
            except grpc.RpcError as error:
                self._problems.report(kubelet, f"the kubelet does not accept the device plugin: {error.details()}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve(self) -> None:
        """Register, and serve until the kubelet has another socket, or does not watch the devices."""
        kubelet = _identity(self._folder / _KUBELET)
        endpoint = self._folder / _ENDPOINT
        endpoint.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._calls.handler(),))
        server.add_insecure_port(f"unix://{endpoint}")
        await server.start()
        try:
            await self._register()
            self._problems.report(str(self._folder / _KUBELET), "")
            silent = 0
            while silent < _SILENT_PAUSES and _identity(self._folder / _KUBELET) == kubelet:
                await asyncio.sleep(_PAUSE_SECONDS)
                silent = 0 if self.is_registered else silent + 1
        finally:
            await server.stop(grace=None)

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._folder / _KUBELET}") as channel:
            call = channel.unary_unary(
                _REGISTER, request_serializer=RegisterRequest.SerializeToString, response_deserializer=Empty.FromString
            )
            await call(
                RegisterRequest(version=_VERSION, endpoint=_ENDPOINT, resource_name=self._resource, options=OPTIONS),
                timeout=_REGISTRATION_SECONDS,
            )
        log.info("device plugin for %s registered with the kubelet", self._resource)


def _identity(socket: Path) -> tuple[int, int, int]:
    """Return what tells a socket from another one of the same path.

    Raises:
        OSError: it does not exist.
    """
    status = socket.stat()
    return status.st_dev, status.st_ino, status.st_ctime_ns
