"""A kubelet's sockets for device plugins and for its list of resources, for what a real one does not do on request.

`tests/system/test_agent_device_plugin.py` has the same plugin under a real kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import grpc

from agent.device_plugin.calls import SERVICE
from agent.device_plugin.messages_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerDevices,
    ContainerPreferredAllocationRequest,
    ContainerResources,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    ListPodResourcesResponse,
    PodResources,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
)
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from agent.device_plugin.matching import Container

RESOURCE = "example.com/gpu"


class PlayedKubelet:
    """A kubelet that watches the devices of the plugin that registers, and lists the containers that a test sets."""

    def __init__(self, folder: Path, *, refuses: str = "", watches: bool = True) -> None:
        """Use the sockets of `folder`; with `refuses` it accepts no plugin, without `watches` it ignores them."""
        self.folder = folder
        self.pod_resources = folder / "resources.sock"
        self.held: Mapping[Container, Sequence[str]] = {}
        self.registrations: asyncio.Queue[RegisterRequest] = asyncio.Queue()
        self.updates: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._refuses = refuses
        self._watches = watches
        self._watch: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """Accept plugins while the block runs; a new kubelet removes the sockets of the plugins of the last one."""
        for socket in self.folder.glob("*.sock"):
            socket.unlink()
        servers = [
            await _serve(
                self.folder / "kubelet.sock", "v1beta1.Registration", "Register", self._register, RegisterRequest
            ),
            await _serve(self.pod_resources, "v1.PodResourcesLister", "List", self._list, Empty),
        ]
        try:
            yield self
        finally:
            if self._watch is not None:
                self._watch.cancel()
            if self._channel is not None:
                await self._channel.close()
            for server in servers:
                await server.stop(grace=None)

    async def devices(self) -> dict[str, str]:
        """Return the next list of devices, with the health of each."""
        return await asyncio.wait_for(self.updates.get(), PATIENCE_S)

    async def options(self) -> DevicePluginOptions:
        """Ask what the plugin wants to be called for."""
        answer: DevicePluginOptions = await self._call("GetDevicePluginOptions", Empty(), DevicePluginOptions)
        return answer

    async def prefer(self, available: Sequence[str], count: int) -> list[str]:
        """Ask which devices a container should get."""
        request = ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=count)
        answer: PreferredAllocationResponse = await self._call(
            "GetPreferredAllocation",
            PreferredAllocationRequest(container_requests=[request]),
            PreferredAllocationResponse,
        )
        return [*answer.container_responses[0].deviceIDs]

    async def allocate(self, *devices: str) -> list[str]:
        """Ask for the CDI names of devices for a container."""
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=devices)])
        answer: AllocateResponse = await self._call("Allocate", request, AllocateResponse)
        return [each.name for each in answer.container_responses[0].cdi_devices]

    async def pre_start(self, *devices: str) -> None:
        """Say that the container with these devices is about to start."""
        await self._call("PreStartContainer", PreStartContainerRequest(devices_ids=devices), Empty)

    async def _call(self, method: str, request: Any, answer: Any) -> Any:
        assert self._channel is not None
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await call(request, timeout=PATIENCE_S)

    async def _register(self, request: RegisterRequest, context: grpc.aio.ServicerContext) -> Empty:
        if self._refuses:
            await context.abort(grpc.StatusCode.UNKNOWN, self._refuses)
        self._channel = grpc.aio.insecure_channel(f"unix://{self.folder / request.endpoint}")
        if self._watches:
            self._watch = asyncio.create_task(self._watch_devices(self._channel))
        self.registrations.put_nowait(request)
        return Empty()

    async def _watch_devices(self, channel: grpc.aio.Channel) -> None:
        stream = channel.unary_stream(
            f"/{SERVICE}/ListAndWatch",
            request_serializer=Empty.SerializeToString,
            response_deserializer=ListAndWatchResponse.FromString,
        )(Empty())
        with contextlib.suppress(grpc.RpcError):  # the plugin's end
            async for each in stream:
                self.updates.put_nowait({device.ID: device.health for device in each.devices})

    async def _list(self, _request: Empty, _context: grpc.aio.ServicerContext) -> ListPodResourcesResponse:
        return ListPodResourcesResponse(
            pod_resources=[
                PodResources(
                    namespace=container.namespace,
                    name=container.pod,
                    containers=[
                        ContainerResources(
                            name=container.name,
                            devices=[
                                ContainerDevices(resource_name=RESOURCE, device_ids=devices),
                                ContainerDevices(resource_name="other.com/device", device_ids=["x"]),
                            ],
                        )
                    ],
                )
                for container, devices in self.held.items()
            ]
        )


async def _serve(socket: Path, service: str, method: str, answer: Any, request: Any) -> grpc.aio.Server:
    handler = grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    return server
