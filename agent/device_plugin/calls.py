"""The answers to the kubelet's calls (service v1beta1.DevicePlugin)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from agent.device_plugin import devices, matching
from agent.device_plugin.messages_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateResponse,
    ContainerPreferredAllocationResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)
from agent.device_plugin.node_view import NodeView
from agent.refusal import Refusal
from allocation.wire import environment
from cluster.errors import ClusterError

log = logging.getLogger(__name__)

Q = TypeVar("Q")
R = TypeVar("R")

SERVICE: Final = "v1beta1.DevicePlugin"
OPTIONS: Final = DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
_PATIENCE_SECONDS: Final = 5.0
"""How long an answer may take: meanwhile the kubelet admits no other pod."""


class Calls:
    """The methods of the service for one node, by what kubelet and API server say at each call."""

    def __init__(self, view: NodeView, *, on_refused: Callable[[], None], on_listener: Callable[[], None]) -> None:
        """Ask `view` at each call.

        Args:
            view: the node.
            on_refused: called for each refusal.
            on_listener: called when `listeners` has changed.
        """
        self._view = view
        self._on_refused = on_refused
        self._on_listener = on_listener
        self._devices: Sequence[Device] = ()
        self._changed = asyncio.Event()
        self.listeners = 0
        """How many streams of devices are open: the kubelet has one while it knows this plugin."""

    def set_devices(self, found: Sequence[Device]) -> None:
        """Tell the kubelet the devices of the node."""
        if [*found] != [*self._devices]:
            self._devices = found
            self._changed.set()
            self._changed = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the methods of the service."""
        unary: Mapping[str, tuple[Callable[[Any], Awaitable[Message]], type[Message], type[Message]]] = {
            "GetDevicePluginOptions": (_options, Empty, DevicePluginOptions),
            "GetPreferredAllocation": (self._prefer, PreferredAllocationRequest, PreferredAllocationResponse),
            "Allocate": (self._allocate, AllocateRequest, AllocateResponse),
            "PreStartContainer": (self._pre_start, PreStartContainerRequest, Empty),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                self._refusing(name, answer),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for name, (answer, request, response) in unary.items()
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch,
            request_deserializer=Empty.FromString,
            response_serializer=ListAndWatchResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _list_and_watch(
        self, _request: Empty, _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ListAndWatchResponse]:
        """Send all devices at first and after each change; to the kubelet the end of the stream is that of all."""
        self.listeners += 1
        self._on_listener()
        try:
            while True:
                changed = self._changed
                yield ListAndWatchResponse(devices=self._devices)
                await changed.wait()
        finally:
            self.listeners -= 1
            self._on_listener()

    async def _prefer(self, request: PreferredAllocationRequest) -> PreferredAllocationResponse:
        """Return devices of the cards that the scheduler chose; the kubelet takes them."""
        cards = matching.admitted(await self._view.held(), await self._view.allocated())
        chosen = [
            devices.choose(
                cards, each.available_deviceIDs, required=each.must_include_deviceIDs, count=each.allocation_size
            )
            for each in request.container_requests
        ]
        return PreferredAllocationResponse(
            container_responses=[ContainerPreferredAllocationResponse(deviceIDs=each) for each in chosen]
        )

    async def _allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return the CDI names of the cards of the devices; the kubelet did not have to take the preferred ones."""
        held, allocated = await self._view.held(), await self._view.allocated()
        for each in request.container_requests:
            matching.check_admitted(each.devices_ids, held, allocated)
        return AllocateResponse(
            container_responses=[
                ContainerAllocateResponse(
                    cdi_devices=[
                        CDIDevice(name=environment.host_name(card)) for card in devices.cards_of(each.devices_ids)
                    ]
                )
                for each in request.container_requests
            ]
        )

    async def _pre_start(self, request: PreStartContainerRequest) -> Empty:
        """Let a container start if its devices are of its own cards: only now is it certain whose they are."""
        matching.check_starting(request.devices_ids, await self._view.held(), await self._view.allocated())
        return Empty()

    def _refusing(
        self, method: str, answer: Callable[[Q], Awaitable[R]]
    ) -> Callable[[Q, grpc.aio.ServicerContext], Awaitable[R]]:
        """Return the answer as a method of the service, of which each failure is a refusal."""

        async def call(request: Q, context: grpc.aio.ServicerContext) -> R:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    return await answer(request)
            except Refusal as refusal:
                code, why = grpc.StatusCode.FAILED_PRECONDITION, str(refusal)
            except (ClusterError, grpc.RpcError, TimeoutError) as error:
                code = grpc.StatusCode.UNAVAILABLE
                why = f"the kubelet or the API server does not say whose the devices are: {error}"
            self._on_refused()
            log.warning("%s refused: %s", method, why)
            await context.abort(code, why)
            raise AssertionError  # abort raises

        return call


async def _options(_request: Empty) -> DevicePluginOptions:
    return OPTIONS
