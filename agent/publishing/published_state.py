"""Watches and reads what the API server has of the nodes that this agent serves.

The agent is the only intended writer of what it publishes. Other clients may still change or delete it, and a Node may
be deleted and registered again; the agent then writes it again. A watch event may be older than the agent's last write,
so the agent reads the object before it concludes that another client changed it.
"""

import asyncio
from collections.abc import Callable

import msgspec

from allocation import names, node_isolation
from allocation.constraints import words
from cluster.api import Api
from cluster.errors import NotFoundError
from cluster.gpu_node_status import GpuNodeStatus, Spec, Status
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceRequestStatus
from cluster.resource import GPU_NODE_STATUSES, NODES


class NodeMeta(ObjectMeta, rename="camel"):
    """A Node's metadata with its annotations and labels."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class Node(msgspec.Struct):
    """A Node, of which the agent needs its annotations and labels."""

    metadata: NodeMeta

    @property
    def wanted_allocator(self) -> str:
        """The label that says who is to give out its cards; empty if it does not exist."""
        return self.metadata.labels.get(names.ALLOCATOR_LABEL, "")

    @property
    def cordoned(self) -> frozenset[str]:
        """The UUIDs of the cards that take no new pods."""
        return frozenset(words(self.metadata.annotations.get(names.CORDON, "")))

    @property
    def register(self) -> str:
        """The register annotation; empty if it does not exist."""
        return self.metadata.annotations.get(names.HAMI_REGISTER, "")


async def observe(
    api: Api,
    *,
    node: str,
    on_node: Callable[[str, Node | None], None],
    on_status: Callable[[str, Status | None], None],
    on_spec: Callable[[str, Spec], None],
) -> None:
    """Call back for each change of a Node, of a status or of what the scheduler writes, until cancelled.

    The arguments of a callback are the node and the present value; None stands for an object that does not exist and
    for a status that was never written. An empty `node` stands for all nodes.
    """
    selectors = {"fieldSelector": f"metadata.name={node}"} if node else None
    nodes = Informer(
        api,
        NODES,
        Node,
        on_upsert=lambda item, _: on_node(item.metadata.name, item),
        on_delete=lambda item: on_node(item.metadata.name, None),
        selectors=selectors,
    )

    def notify(name: str, status: Status | None, spec: Spec) -> None:
        on_status(name, status)
        on_spec(name, spec)

    statuses = Informer(
        api,
        GPU_NODE_STATUSES,
        GpuNodeStatus,
        on_upsert=lambda item, _: notify(item.metadata.name, item.status, item.spec),
        on_delete=lambda item: notify(item.metadata.name, None, Spec()),
        selectors=selectors,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(nodes.run(), name="watch of nodes")
        group.create_task(statuses.run(), name="watch of GpuNodeStatuses")


async def read_register(api: Api, node: str) -> str | None:
    """Return the present register annotation of `node`, or None if the Node does not exist."""
    try:
        return (await api.get(NODES, Node, name=node)).register
    except NotFoundError:
        return None


async def read_status(api: Api, node: str) -> Status | None:
    """Return the present status of `node`'s GpuNodeStatus, or None if it does not exist."""
    try:
        return (await api.get(GPU_NODE_STATUSES, GpuNodeStatus, name=node)).status
    except NotFoundError:
        return None


def same(one: Status | None, other: Status | None) -> bool:
    """Whether two statuses have the same content; the API server reorders devices and backends."""
    return _content(one) == _content(other)


def _content(status: Status | None) -> object:
    if status is None:
        return None
    devices = {device.uuid: device for device in status.devices}
    properties = (status.total, status.driver_version, status.delivery, status.fabric)
    problems = (status.incomplete, status.state, status.message)
    allocator = (status.allocator, status.drain)
    isolation = node_isolation.reported(
        status.isolation, () if status.isolation_problems is msgspec.UNSET else status.isolation_problems
    )
    return devices, properties, problems, allocator, frozenset(status.isolation), isolation, _request_statuses(status)


def _request_statuses(status: Status) -> dict[str, InstanceRequestStatus]:
    return {} if status.mig_instances is msgspec.UNSET else {each.id: each for each in status.mig_instances}
