"""What the plugin asks about its node: the pods that are bound to it, and the devices that its kubelet has given."""

from typing import Final, Protocol

import grpc
import msgspec

from agent.device_plugin.matching import Allocated, BoundPod, Container, Held, allocated
from agent.device_plugin.messages_pb2 import Empty, ListPodResourcesResponse
from cluster.api import ReadApi
from cluster.metadata import AnnotatedMeta
from cluster.resource import PODS

_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_LIST: Final = "/v1.PodResourcesLister/List"


class NodeView(Protocol):
    """A node as its kubelet and the API server show it at this moment."""

    async def held(self) -> Held:
        """Return the devices of all containers that the kubelet lists."""

    async def allocated(self) -> Allocated:
        """Return the cards of all containers that get them from this node's plugin."""


class _Pod(msgspec.Struct):
    metadata: AnnotatedMeta


class LiveNodeView:
    """The view by calls to both: neither is a copy, which could be older than the pod that the kubelet asks about."""

    def __init__(self, api: ReadApi, *, node: str, resource: str, socket: str) -> None:
        """Ask the kubelet at `socket` for its devices of the extended `resource`."""
        self._api = api
        self._node = node
        self._resource = resource
        self._socket = socket

    async def held(self) -> Held:
        """Return the devices of all containers that the kubelet lists.

        Raises:
            grpc.RpcError: it does not answer.
        """
        async with grpc.aio.insecure_channel(f"unix://{self._socket}") as channel:
            call = channel.unary_unary(
                _LIST,
                request_serializer=Empty.SerializeToString,
                response_deserializer=ListPodResourcesResponse.FromString,
            )
            listed: ListPodResourcesResponse = await call(Empty())
        return {
            Container(pod.namespace, pod.name, container.name): [
                device
                for devices in container.devices
                if devices.resource_name == self._resource
                for device in devices.device_ids
            ]
            for pod in listed.pod_resources
            for container in pod.containers
        }

    async def allocated(self) -> Allocated:
        """Return the cards of all containers that get them from this node's plugin.

        Raises:
            ClusterError: the API server does not answer, or refuses.
        """
        bound = f"spec.nodeName={self._node},{_UNFINISHED}"
        pods = await self._api.list(PODS, _Pod, fieldSelector=bound)
        return allocated(
            (BoundPod(each.metadata.namespace, each.metadata.name, each.metadata.annotations) for each in pods),
            node=self._node,
        )
