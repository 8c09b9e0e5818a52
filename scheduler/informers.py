"""The informers of a term, one for each kind that the scheduler watches."""

from collections.abc import Iterator
from typing import Any

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.disruption_budget import PodDisruptionBudget
from cluster.dra import DeviceClass, ResourceClaim, ResourceSlice
from cluster.gpu_binding import GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    GPU_BINDINGS,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    GPU_QUEUES,
    GPU_QUOTAS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from cluster.resource_quota import ResourceQuota
from scheduler.binding.node_locks import NodeLocks
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.objects import Namespace, Node, NodeWithImages, Pod, PriorityClass
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state.cluster_state import ClusterState
from scheduler.state.storage import Storage
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)


class StorageInformers(msgspec.Struct, frozen=True):
    """One informer for each kind of storage object."""

    classes: Informer[StorageClass]
    drivers: Informer[CsiDriver]
    csi_nodes: Informer[CsiNode]
    capacities: Informer[StorageCapacity]
    volumes: Informer[PersistentVolume]
    attachments: Informer[VolumeAttachment]
    claims: Informer[Claim]

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Iterate over all informers."""
        yield from (self.classes, self.drivers, self.csi_nodes, self.capacities)
        yield from (self.volumes, self.attachments, self.claims)

    def feed(self, storage: Storage) -> None:
        """Have every change applied to `storage`."""
        self.classes.add_handlers(on_upsert=storage.set_class, on_delete=storage.drop_class)
        self.drivers.add_handlers(on_upsert=storage.set_driver, on_delete=storage.drop_driver)
        self.csi_nodes.add_handlers(on_upsert=storage.set_csi_node, on_delete=storage.drop_csi_node)
        self.capacities.add_handlers(on_upsert=storage.set_capacity, on_delete=storage.drop_capacity)
        self.volumes.add_handlers(on_upsert=storage.set_volume, on_delete=storage.drop_volume)
        self.attachments.add_handlers(on_upsert=storage.set_attachment, on_delete=storage.drop_attachment)
        self.claims.add_handlers(on_upsert=storage.set_claim, on_delete=storage.drop_claim)

    def find_claim(self, key: ClaimKey) -> Claim | None:
        """Return a claim."""
        return self.claims.get(key.name, key.namespace)


class Informers(msgspec.Struct, frozen=True):
    """One informer for each kind that scheduling depends on; pods come last, because they refer to all others.

    `device_classes`, `slices` and `resource_claims` are empty where the API server does not serve them, as before
    Kubernetes 1.34; the last two are None where no other DRA driver counts. In extender mode, `storage` is None:
    kube-scheduler evaluates the volumes of pods. `bindings` is None where no GPUBinding counts, because the kind may
    not exist there; `budgets` is None where nobody is preempted.
    """

    nodes: Informer[Node]
    statuses: Informer[GpuNodeStatus]
    leases: Informer[Lease]
    namespaces: Informer[Namespace]
    quotas: Informer[ResourceQuota]
    claims: Informer[GpuClaim]
    gpu_quotas: Informer[GpuQuota]
    queues: Informer[GpuQueue]
    priority_classes: Informer[PriorityClass]
    device_classes: Informer[DeviceClass]
    slices: Informer[ResourceSlice] | None
    resource_claims: Informer[ResourceClaim] | None
    bindings: Informer[GpuBinding] | None
    budgets: Informer[PodDisruptionBudget] | None
    storage: StorageInformers | None
    pods: Informer[Pod]

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Iterate over all informers."""
        yield from (self.nodes, self.statuses, self.leases, self.namespaces, self.quotas)
        yield from (self.gpu_quotas, self.claims, self.queues, self.priority_classes, self.device_classes)
        yield from (each for each in (self.slices, self.resource_claims) if each is not None)
        if self.bindings is not None:
            yield self.bindings
        if self.budgets is not None:
            yield self.budgets
        yield from self.storage or ()
        yield self.pods

    def feed_state(self, state: ClusterState) -> None:
        """Have every change applied to `state`."""
        self.nodes.add_handlers(on_upsert=state.set_node, on_delete=state.drop_node)
        self.statuses.add_handlers(on_upsert=state.set_status, on_delete=state.drop_status)
        self.leases.add_handlers(on_upsert=state.set_lease, on_delete=state.drop_lease)
        self.namespaces.add_handlers(on_upsert=state.set_namespace, on_delete=state.drop_namespace)
        self.quotas.add_handlers(on_upsert=state.set_quota, on_delete=state.drop_quota)
        self.gpu_quotas.add_handlers(on_upsert=state.set_gpu_quota, on_delete=state.drop_gpu_quota)
        self.claims.add_handlers(on_upsert=state.set_claim, on_delete=state.drop_claim)
        self.queues.add_handlers(on_upsert=state.set_queue, on_delete=state.drop_queue)
        classes = state.priority_classes
        self.priority_classes.add_handlers(on_upsert=classes.set, on_delete=classes.drop)
        self.device_classes.add_handlers(on_upsert=state.set_device_class, on_delete=state.drop_device_class)
        devices = state.foreign_devices
        if self.slices is not None:
            self.slices.add_handlers(on_upsert=devices.set_slice, on_delete=devices.drop_slice)
        if self.resource_claims is not None:
            self.resource_claims.add_handlers(on_upsert=devices.set_claim, on_delete=devices.drop_claim)
        if self.bindings is not None:
            self.bindings.add_handlers(on_upsert=state.set_binding, on_delete=state.drop_binding)
        if self.storage is not None:
            self.storage.feed(state.storage)
        self.pods.add_handlers(on_upsert=state.set_pod, on_delete=state.drop_pod)

    def feed_budgets(self, budgets: DisruptionBudgets) -> None:
        """Have every change applied to `budgets`."""
        if self.budgets is not None:
            self.budgets.add_handlers(on_upsert=budgets.set, on_delete=budgets.drop)

    def feed_locks(self, locks: NodeLocks) -> None:
        """Have changes of nodes and pods applied to `locks`."""
        self.nodes.add_handlers(on_upsert=locks.set_node, on_delete=locks.drop_node)
        self.pods.add_handlers(on_upsert=locks.set_pod, on_delete=locks.set_pod)

    def feed_volume_binder(self, binder: VolumeBinder) -> None:
        """Have `binder` look at the pods again that wait for what has changed."""
        if self.storage is not None:
            self.storage.claims.add_handlers(on_upsert=binder.set_claim, on_delete=binder.set_claim)
            self.storage.volumes.add_handlers(on_upsert=binder.set_volume, on_delete=binder.set_volume)
        self.nodes.add_handlers(on_upsert=lambda *_: None, on_delete=binder.drop_node)
        self.pods.add_handlers(on_upsert=binder.set_pod, on_delete=binder.set_pod)


def informers(
    api: Api,
    *,
    relist_seconds: float,
    has_storage: bool,
    has_bindings: bool,
    has_foreign_drivers: bool,
    preempts: bool,
    with_images: bool,
) -> Informers:
    """Return the informers, which list all objects again every `relist_seconds`.

    Extenders need none for storage (`has_storage`), GPUBindings are watched if they count (`has_bindings`), the devices
    of other DRA drivers if they do (`has_foreign_drivers`), and PodDisruptionBudgets if the scheduler preempts pods.
    Nodes have their images if `with_images`.
    """
    kind = NodeWithImages if with_images else Node
    return Informers(
        nodes=Informer(api, NODES, kind, relist_seconds=relist_seconds),
        statuses=Informer(api, GPU_NODE_STATUSES, GpuNodeStatus, relist_seconds=relist_seconds),
        leases=Informer(api, LEASES, Lease, namespace=SYSTEM_NAMESPACE, relist_seconds=relist_seconds),
        namespaces=Informer(api, NAMESPACES, Namespace, relist_seconds=relist_seconds),
        quotas=Informer(api, RESOURCE_QUOTAS, ResourceQuota, relist_seconds=relist_seconds),
        gpu_quotas=Informer(api, GPU_QUOTAS, GpuQuota, relist_seconds=relist_seconds),
        claims=Informer(api, GPU_CLAIMS, GpuClaim, relist_seconds=relist_seconds),
        queues=Informer(api, GPU_QUEUES, GpuQueue, relist_seconds=relist_seconds),
        priority_classes=Informer(api, PRIORITY_CLASSES, PriorityClass, relist_seconds=relist_seconds),
        device_classes=Informer(api, DEVICE_CLASSES, DeviceClass, relist_seconds=relist_seconds, is_optional=True),
        slices=Informer(api, RESOURCE_SLICES, ResourceSlice, relist_seconds=relist_seconds, is_optional=True)
        if has_foreign_drivers
        else None,
        resource_claims=Informer(api, RESOURCE_CLAIMS, ResourceClaim, relist_seconds=relist_seconds, is_optional=True)
        if has_foreign_drivers
        else None,
        bindings=Informer(api, GPU_BINDINGS, GpuBinding, relist_seconds=relist_seconds) if has_bindings else None,
        budgets=Informer(api, POD_DISRUPTION_BUDGETS, PodDisruptionBudget, relist_seconds=relist_seconds)
        if preempts
        else None,
        storage=_storage_informers(api, relist_seconds) if has_storage else None,
        pods=Informer(api, PODS, Pod, relist_seconds=relist_seconds),
    )


def _storage_informers(api: Api, relist_seconds: float) -> StorageInformers:
    return StorageInformers(
        classes=Informer(api, STORAGE_CLASSES, StorageClass, relist_seconds=relist_seconds),
        drivers=Informer(api, CSI_DRIVERS, CsiDriver, relist_seconds=relist_seconds),
        csi_nodes=Informer(api, CSI_NODES, CsiNode, relist_seconds=relist_seconds),
        capacities=Informer(api, CSI_STORAGE_CAPACITIES, StorageCapacity, relist_seconds=relist_seconds),
        volumes=Informer(api, PERSISTENT_VOLUMES, PersistentVolume, relist_seconds=relist_seconds),
        attachments=Informer(api, VOLUME_ATTACHMENTS, VolumeAttachment, relist_seconds=relist_seconds),
        claims=Informer(api, PERSISTENT_VOLUME_CLAIMS, Claim, relist_seconds=relist_seconds),
    )
