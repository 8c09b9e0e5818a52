"""The informers of a term, one for each kind that the scheduler watches."""

from collections.abc import Iterator
from typing import Any

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS
from cluster.resource_quota import ResourceQuota
from scheduler.binding.node_locks import NodeLocks
from scheduler.objects import Namespace, Node, NodeWithImages, Pod
from scheduler.state.cluster_state import ClusterState


class Informers(msgspec.Struct, frozen=True):
    """One informer for each kind that scheduling depends on; pods come last, because they refer to all others."""

    nodes: Informer[Node]
    statuses: Informer[GpuNodeStatus]
    leases: Informer[Lease]
    namespaces: Informer[Namespace]
    quotas: Informer[ResourceQuota]
    pods: Informer[Pod]

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Iterate over all informers."""
        yield from (self.nodes, self.statuses, self.leases, self.namespaces, self.quotas, self.pods)

    def feed_state(self, state: ClusterState) -> None:
        """Have every change applied to `state`."""
        self.nodes.add_handlers(on_upsert=state.set_node, on_delete=state.drop_node)
        self.statuses.add_handlers(on_upsert=state.set_status, on_delete=state.drop_status)
        self.leases.add_handlers(on_upsert=state.set_lease, on_delete=state.drop_lease)
        self.namespaces.add_handlers(on_upsert=state.set_namespace, on_delete=state.drop_namespace)
        self.quotas.add_handlers(on_upsert=state.set_quota, on_delete=state.drop_quota)
        self.pods.add_handlers(on_upsert=state.set_pod, on_delete=state.drop_pod)

    def feed_locks(self, locks: NodeLocks) -> None:
        """Have changes of nodes and pods applied to `locks`."""
        self.nodes.add_handlers(on_upsert=locks.set_node, on_delete=locks.drop_node)
        self.pods.add_handlers(on_upsert=locks.set_pod, on_delete=locks.set_pod)


def informers(api: Api, *, relist_seconds: float, with_images: bool = False) -> Informers:
    """Return the informers, which list all objects again every `relist_seconds`; nodes have images if `with_images`."""
    kind = NodeWithImages if with_images else Node
    return Informers(
        nodes=Informer(api, NODES, kind, relist_seconds=relist_seconds),
        statuses=Informer(api, GPU_NODE_STATUSES, GpuNodeStatus, relist_seconds=relist_seconds),
        leases=Informer(api, LEASES, Lease, namespace=SYSTEM_NAMESPACE, relist_seconds=relist_seconds),
        namespaces=Informer(api, NAMESPACES, Namespace, relist_seconds=relist_seconds),
        quotas=Informer(api, RESOURCE_QUOTAS, ResourceQuota, relist_seconds=relist_seconds),
        pods=Informer(api, PODS, Pod, relist_seconds=relist_seconds),
    )
