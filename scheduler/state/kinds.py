"""The kinds of objects that make up the state: the scheduler watches them, and `kubectl gpu` reads them once.

Each kind has one row. A row with a name is one that other modules refer to.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cluster import resource
from cluster.dra import DeviceClass, ResourceClaim, ResourceSlice
from cluster.gpu_binding import GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.informer import HasMeta
from cluster.lease import Lease
from cluster.pod_group import KubernetesPodGroup, PodGroup
from cluster.resource import Resource
from cluster.resource_quota import ResourceQuota
from scheduler.objects import Namespace, Node, NodeWithImages, Pod, PriorityClass
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)

Item = TypeVar("Item", bound=HasMeta)

Handlers = tuple[Callable[[Item, Item | None], None], Callable[[Item], None]]
"""What a state does with an object and its previous state, and with one that was deleted."""


class StateKind(msgspec.Struct, Generic[Item], frozen=True):
    """A kind of objects that is part of the state.

    Attributes:
        resource: the kind in the API.
        decoded: the fields that are read of its objects.
        handlers: returns what a state does with an object, and with a deleted one.
        namespace: where its objects are; empty for all namespaces.
        is_optional: whether the state is complete without it, where it does not exist or may not be read.
    """

    resource: Resource
    decoded: type[Item]
    handlers: Callable[[ClusterState], Handlers[Item]]
    namespace: str = ""
    is_optional: bool = False


STATUSES: Final = StateKind(
    resource.GPU_NODE_STATUSES, GpuNodeStatus, lambda to: (to.agent_reports.set, to.agent_reports.drop)
)
LEASES: Final = StateKind(resource.LEASES, Lease, lambda to: (to.set_lease, to.drop_lease), SYSTEM_NAMESPACE)
NODES: Final = StateKind(resource.NODES, Node, lambda to: (to.set_node, to.drop_node))
PODS: Final = StateKind(resource.PODS, Pod, lambda to: (to.set_pod, to.drop_pod))
PRIORITY_CLASSES: Final = StateKind(
    resource.PRIORITY_CLASSES, PriorityClass, lambda to: (to.priority_classes.set, to.priority_classes.drop)
)
DEVICE_CLASSES: Final = StateKind(
    resource.DEVICE_CLASSES,
    DeviceClass,
    lambda to: (to.device_classes.set, to.device_classes.drop),
    is_optional=True,
)
VOLUMES: Final = StateKind(
    resource.PERSISTENT_VOLUMES, PersistentVolume, lambda to: (to.storage.set_volume, to.storage.drop_volume)
)
VOLUME_CLAIMS: Final = StateKind(
    resource.PERSISTENT_VOLUME_CLAIMS, Claim, lambda to: (to.storage.set_claim, to.storage.drop_claim)
)

_NODES_WITH_IMAGES: Final = StateKind(resource.NODES, NodeWithImages, lambda to: (to.set_node, to.drop_node))
_BINDINGS: Final = StateKind(resource.GPU_BINDINGS, GpuBinding, lambda to: (to.bindings.set, to.bindings.drop))
_POD_GROUPS: Final[tuple[StateKind[Any], ...]] = (
    StateKind(resource.POD_GROUPS, PodGroup, lambda to: (to.pod_groups.set, to.pod_groups.drop), is_optional=True),
    StateKind(
        resource.KUBERNETES_POD_GROUPS,
        KubernetesPodGroup,
        lambda to: (to.pod_groups.set, to.pod_groups.drop),
        is_optional=True,
    ),
)
_ALWAYS: Final[tuple[StateKind[Any], ...]] = (
    STATUSES,
    LEASES,
    StateKind(resource.NAMESPACES, Namespace, lambda to: (to.limits.set_namespace, to.limits.drop_namespace)),
    StateKind(resource.RESOURCE_QUOTAS, ResourceQuota, lambda to: (to.limits.set_quota, to.limits.drop_quota)),
    StateKind(resource.GPU_QUOTAS, GpuQuota, lambda to: (to.limits.set_gpu_quota, to.limits.drop_gpu_quota)),
    StateKind(resource.GPU_QUEUES, GpuQueue, lambda to: (to.limits.set_queue, to.limits.drop_queue)),
    StateKind(resource.GPU_CLAIMS, GpuClaim, lambda to: (to.set_claim, to.drop_claim)),
    PRIORITY_CLASSES,
    DEVICE_CLASSES,
)
_FOREIGN_DEVICES: Final[tuple[StateKind[Any], ...]] = (
    StateKind(
        resource.RESOURCE_SLICES,
        ResourceSlice,
        lambda to: (to.foreign_devices.set_slice, to.foreign_devices.drop_slice),
        is_optional=True,
    ),
    StateKind(
        resource.RESOURCE_CLAIMS,
        ResourceClaim,
        lambda to: (to.foreign_devices.set_claim, to.foreign_devices.drop_claim),
        is_optional=True,
    ),
)
_STORAGE: Final[tuple[StateKind[Any], ...]] = (
    StateKind(resource.STORAGE_CLASSES, StorageClass, lambda to: (to.storage.set_class, to.storage.drop_class)),
    StateKind(resource.CSI_DRIVERS, CsiDriver, lambda to: (to.storage.set_driver, to.storage.drop_driver)),
    StateKind(resource.CSI_NODES, CsiNode, lambda to: (to.storage.set_csi_node, to.storage.drop_csi_node)),
    StateKind(
        resource.CSI_STORAGE_CAPACITIES,
        StorageCapacity,
        lambda to: (to.storage.set_capacity, to.storage.drop_capacity),
    ),
    StateKind(
        resource.VOLUME_ATTACHMENTS,
        VolumeAttachment,
        lambda to: (to.storage.set_attachment, to.storage.drop_attachment),
    ),
    VOLUMES,
    VOLUME_CLAIMS,
)


def needed(
    *, has_storage: bool, has_bindings: bool, has_foreign_drivers: bool, has_pod_groups: bool, with_images: bool
) -> tuple[StateKind[Any], ...]:
    """Return the kinds that a scheduler needs; pods come last, because they refer to all others.

    Extenders need no storage (`has_storage`): kube-scheduler evaluates the volumes of pods. GPUBindings may not exist
    in a cluster where they do not count (`has_bindings`). The devices of other DRA drivers are those that such claims
    have (`has_foreign_drivers`). PodGroups say how many pods get nodes together, where they count (`has_pod_groups`).
    Nodes have their images if `with_images`.
    """
    return (
        *_ALWAYS,
        _NODES_WITH_IMAGES if with_images else NODES,
        *((_BINDINGS,) if has_bindings else ()),
        *(_FOREIGN_DEVICES if has_foreign_drivers else ()),
        *(_POD_GROUPS if has_pod_groups else ()),
        *(_STORAGE if has_storage else ()),
        PODS,
    )
