"""What the API server has of the nodes that this agent serves, watched.

The agent is the only writer of what it publishes. Somebody may still change or delete it, and a Node may be deleted and
registered anew: then it is written again. A watch tells, a read makes sure: an event may be older than our last write.
"""

import asyncio
from collections.abc import Callable

import msgspec

from allocation import names
from allocation.mig import Wish
from cluster.api import Api
from cluster.errors import NotFoundError
from cluster.gpu_node_status import GpuNodeStatus, Status
from cluster.metadata import ObjectMeta
from cluster.mig_status import WishStatus
from cluster.reflector import Reflector
from cluster.resource import GPU_NODE_STATUSES, NODES


class NodeMeta(ObjectMeta, rename="camel"):
    """A Node's metadata with its annotations."""

    annotations: dict[str, str] = {}


class Node(msgspec.Struct):
    """A Node, of which only its register annotation matters here."""

    metadata: NodeMeta

    @property
    def register(self) -> str:
        """Answer the register annotation, empty where there is none."""
        return self.metadata.annotations.get(names.HAMI_REGISTER, "")


async def observe(
    api: Api,
    *,
    node: str,
    on_register: Callable[[str, str | None], None],
    on_status: Callable[[str, Status | None], None],
    on_wishes: Callable[[str, tuple[Wish, ...] | None], None],
) -> None:
    """Tell each register annotation, each status and the scheduler's wishes, with their node, until cancelled.

    None stands for an object that is gone, or for what was never written. Only the objects of `node` are watched,
    or those of all nodes where it is empty.
    """
    selectors = {"fieldSelector": f"metadata.name={node}"} if node else None
    nodes = Reflector(
        api,
        NODES,
        Node,
        on_set=lambda item, _: on_register(item.metadata.name, item.register),
        on_delete=lambda item: on_register(item.metadata.name, None),
        selectors=selectors,
    )

    def tell(name: str, status: Status | None, wishes: tuple[Wish, ...] | None) -> None:
        on_status(name, status)
        on_wishes(name, wishes)

    statuses = Reflector(
        api,
        GPU_NODE_STATUSES,
        GpuNodeStatus,
        on_set=lambda item, _: tell(item.metadata.name, item.status, item.spec.mig_instances),
        on_delete=lambda item: tell(item.metadata.name, None, None),
        selectors=selectors,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(nodes.run(), name="watch of nodes")
        group.create_task(statuses.run(), name="watch of GpuNodeStatuses")


async def read_register(api: Api, node: str) -> str | None:
    """Answer the register annotation of `node` as it is now, None where there is no such Node."""
    try:
        return (await api.get(NODES, Node, name=node)).register
    except NotFoundError:
        return None


async def read_status(api: Api, node: str) -> Status | None:
    """Answer the status of `node`'s GpuNodeStatus as it is now, None where there is none."""
    try:
        return (await api.get(GPU_NODE_STATUSES, GpuNodeStatus, name=node)).status
    except NotFoundError:
        return None


def same(one: Status | None, other: Status | None) -> bool:
    """Whether two statuses say the same; the API server keeps devices and backends in an order of its own."""
    return _content(one) == _content(other)


def _content(status: Status | None) -> object:
    if status is None:
        return None
    devices = {device.uuid: device for device in status.devices}
    return devices, status.total, status.driver_version, frozenset(status.isolation), _wishes(status)


def _wishes(status: Status) -> dict[str, WishStatus]:
    return {} if status.mig_instances is msgspec.UNSET else {each.id: each for each in status.mig_instances}
