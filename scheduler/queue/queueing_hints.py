"""Which events in the cluster may make an unschedulable pod schedulable, derived from the reasons of its rejection.

Kubernetes calls this queueing hints (KEP-4247). A node rejects a pod for the first test that fails, so only an event
that can lift this reason can make the node fit. An unschedulable pod is retried after such an event and no other.
"""

import enum
import functools
from collections.abc import Mapping
from typing import Final

from allocation.reasons import CardReason, NodeReason, PodReason


class ClusterEvent(enum.Flag):
    """A kind of change in the cluster; the handlers of the cluster state notify the queue of each."""

    POD_REMOVED = enum.auto()
    """A pod with a node finished, was deleted, or uses less than before."""
    POD_ADDED = enum.auto()
    """A pod got a node, or labels changed, that inter-pod affinity or topology spread may count."""
    NODE_CHANGED = enum.auto()
    """A node was added, or its labels, taints, allocatable resources or annotations changed."""
    NODE_OPENED = enum.auto()
    """A node accepts GPU pods again.

    Its agent is alive, its driver works, its lock is free, its pods are counted, or it can deliver.
    """
    CARDS_CHANGED = enum.auto()
    """The cards of a node changed: some were added, recovered, uncordoned or partitioned."""
    QUOTA_CHANGED = enum.auto()
    NAMESPACE_CHANGED = enum.auto()
    """The labels of a namespace changed, by which affinity terms select it."""
    STORAGE_CHANGED = enum.auto()
    """A claim, a PersistentVolume, a StorageClass, or what a CSI driver reports about a node changed."""
    GPU_CLAIM_ADDED = enum.auto()
    """The GpuClaim of the pod was created; only the pods that name it are woken (`SchedulingQueue.wake`)."""

    GPU_QUEUE_CHANGED = enum.auto()
    """A GpuQueue was created or changed."""
    GPU_BINDING_CHANGED = enum.auto()
    """The GPUBindings of the pod's application changed, or another of its pods gave back cards; only its pods are woken
    (`SchedulingQueue.wake`)."""
    GANG_CHANGED = enum.auto()
    """Another pod of the pod's gang came, or what its PodGroup says changed; only its pods are woken
    (`SchedulingQueue.wake`)."""
    DEVICE_CLASS_CHANGED = enum.auto()
    """A DeviceClass does not satisfy a resource of ours any more."""


NO_EVENT: Final = ClusterEvent(0)
"""Only a change of the pod itself helps."""
ANY_EVENT: Final = ~NO_EVENT

_FREED = ClusterEvent.POD_REMOVED | ClusterEvent.CARDS_CHANGED
_NODE = ClusterEvent.NODE_CHANGED
_NODE_RESOURCES = ClusterEvent.NODE_CHANGED | ClusterEvent.POD_REMOVED
_OTHER_PODS = (
    ClusterEvent.POD_ADDED | ClusterEvent.POD_REMOVED | ClusterEvent.NODE_CHANGED | ClusterEvent.NAMESPACE_CHANGED
)
_STORAGE = ClusterEvent.STORAGE_CHANGED | ClusterEvent.NODE_CHANGED
_OPENED = ClusterEvent.NODE_OPENED | ClusterEvent.NODE_CHANGED | ClusterEvent.CARDS_CHANGED

_REBOUND: Final = ClusterEvent.GPU_BINDING_CHANGED | ClusterEvent.CARDS_CHANGED
"""What a binding gives has changed, or how pods share its card."""

LIFTED_BY: Final[Mapping[str, ClusterEvent]] = {
    # Cards. Unhealthy, cordoned and unsuitable cards change with the inventory or with the node's cordon annotation;
    # cards in use change with the pods on them.
    CardReason.CardNotHealth.name: ClusterEvent.CARDS_CHANGED,
    CardReason.CardCordoned.name: ClusterEvent.CARDS_CHANGED,
    CardReason.CardTypeMismatch.name: ClusterEvent.CARDS_CHANGED,
    CardReason.CardUuidMismatch.name: ClusterEvent.CARDS_CHANGED,
    CardReason.ModeNotFit.name: ClusterEvent.CARDS_CHANGED,
    CardReason.CardMigTopologyInfeasible.name: ClusterEvent.CARDS_CHANGED,
    CardReason.CardTimeSlicingExhausted.name: _FREED,
    CardReason.CardInsufficientMemory.name: _FREED,
    CardReason.CardInsufficientCore.name: _FREED,
    CardReason.CardInsufficientTflops.name: _FREED,
    CardReason.CardComputeUnitsExhausted.name: _FREED,
    CardReason.ExclusiveDeviceAllocateConflict.name: _FREED,
    CardReason.NumaNotFit.name: _FREED,
    CardReason.AllocatedCardsInsufficientRequest.name: _FREED,
    CardReason.CardTopologyMismatch.name: _FREED,
    CardReason.CardModeLocked.name: _FREED,
    CardReason.ResourceQuotaNotFit.name: _FREED | ClusterEvent.QUOTA_CHANGED | ClusterEvent.GPU_QUEUE_CHANGED,
    # Nodes.
    NodeReason.NodeInsufficientDevice: ClusterEvent.CARDS_CHANGED,
    NodeReason.NodeGpuPodsExhausted: ClusterEvent.POD_REMOVED,
    NodeReason.NodeUnregistered: ClusterEvent.CARDS_CHANGED,
    NodeReason.NodeNameMismatch: _NODE,
    NodeReason.NodeUnschedulable: _NODE,
    NodeReason.NodeTainted: _NODE,
    NodeReason.NodeSelectorMismatch: _NODE,
    NodeReason.NodeInsufficientResource: _NODE_RESOURCES,
    NodeReason.NodeTooManyPods: _NODE_RESOURCES,
    NodeReason.NodePortTaken: _NODE_RESOURCES,
    NodeReason.DevicePluginFull: _NODE_RESOURCES,
    NodeReason.PodAffinityMismatch: _OTHER_PODS,
    NodeReason.PodAntiAffinityMismatch: _OTHER_PODS,
    NodeReason.TopologySpreadMismatch: _OTHER_PODS,
    NodeReason.VolumeNodeAffinityConflict: _STORAGE,
    NodeReason.VolumeZoneMismatch: _STORAGE,
    NodeReason.VolumeNotFound: ClusterEvent.STORAGE_CHANGED,
    NodeReason.VolumeNotAvailable: _STORAGE,
    NodeReason.StorageCapacityInsufficient: _STORAGE,
    NodeReason.VolumeLimitExceeded: _STORAGE | ClusterEvent.POD_REMOVED,
    NodeReason.VolumeInUse: ClusterEvent.POD_REMOVED | ClusterEvent.STORAGE_CHANGED,
    NodeReason.AgentSilent: _OPENED,
    NodeReason.DevicePluginGone: _OPENED,
    NodeReason.NodeNotLockable: _OPENED,
    NodeReason.DriverMissing: _OPENED,
    NodeReason.NodeDraining: _OPENED,
    NodeReason.AllocatedByDra: _OPENED,
    NodeReason.NoCards: _OPENED,
    NodeReason.DeliveryUnavailable: _OPENED,
    NodeReason.ContainerNameTooLong: _OPENED,
    NodeReason.DevicePluginMismatch: _OPENED | ClusterEvent.GPU_BINDING_CHANGED,
    NodeReason.SharedClaimNotLimitable: _OPENED,
    NodeReason.GangBlockMismatch: _FREED | ClusterEvent.NODE_CHANGED,
    NodeReason.GangNotStartable: _OPENED | ClusterEvent.GANG_CHANGED,
    NodeReason.BoundCountMismatch: _OPENED | ClusterEvent.GPU_BINDING_CHANGED,
    NodeReason.NodeNotBound: ClusterEvent.CARDS_CHANGED | ClusterEvent.GPU_BINDING_CHANGED,
    NodeReason.InsufficientGPU: ClusterEvent.CARDS_CHANGED | ClusterEvent.GPU_BINDING_CHANGED,
    NodeReason.FabricMismatch: ClusterEvent.CARDS_CHANGED,
    NodeReason.IsolationUnavailable: ClusterEvent.CARDS_CHANGED,
    NodeReason.UncountedPod: _OPENED,
    NodeReason.ForeignDraDriver: _OPENED,
    NodeReason.InventoryRefused: _OPENED,
    NodeReason.NodeRequestOpen: _OPENED,
    NodeReason.StaticAllocationMismatch: _FREED | ClusterEvent.NODE_CHANGED,
    # The pod as a whole.
    PodReason.NoNode: ClusterEvent.NODE_CHANGED | ClusterEvent.CARDS_CHANGED,
    PodReason.MigInstanceAsked: ANY_EVENT,
    PodReason.VolumeClaimNotReady: ClusterEvent.STORAGE_CHANGED,
    PodReason.GpuClaimNotFound: ClusterEvent.GPU_CLAIM_ADDED,
    PodReason.NoOwnerApplication: NO_EVENT,
    PodReason.NoGpuBinding: ClusterEvent.GPU_BINDING_CHANGED,
    PodReason.QueueUnknown: ClusterEvent.GPU_QUEUE_CHANGED,
    PodReason.QueueForbidden: ClusterEvent.GPU_QUEUE_CHANGED | ClusterEvent.NAMESPACE_CHANGED,
    PodReason.QueueSuspended: ClusterEvent.GPU_QUEUE_CHANGED,
    PodReason.PodQuotaNotFit: ClusterEvent.GPU_QUEUE_CHANGED | ClusterEvent.QUOTA_CHANGED | ClusterEvent.POD_REMOVED,
    PodReason.QuotaSingleExceeded: ClusterEvent.QUOTA_CHANGED | _REBOUND,
    PodReason.AmountNotStated: ClusterEvent.QUOTA_CHANGED | ClusterEvent.GPU_QUEUE_CHANGED | _REBOUND,
    PodReason.GangIncomplete: ClusterEvent.GANG_CHANGED,
    PodReason.PodGroupNotFound: NO_EVENT,  # the PodGroup itself wakes the pods of its gang
    PodReason.DraAllocated: ClusterEvent.DEVICE_CLASS_CHANGED,
    PodReason.KubeSchedulerSilent: NO_EVENT,  # it never waits in this queue
    PodReason.PodHeld: NO_EVENT,
}
"""The events that can lift each reason."""


@functools.lru_cache(1024)
def events_for(reasons: frozenset[str]) -> tuple[ClusterEvent, ...]:
    """Return the kinds of events that may make a pod schedulable that was rejected for `reasons`.

    If `reasons` is empty because they were not computed, any event may help.
    """
    if not reasons:
        return members(ANY_EVENT)
    events = NO_EVENT
    for reason in reasons:
        events |= LIFTED_BY.get(reason, ANY_EVENT)
    return members(events)


@functools.lru_cache(128)
def members(events: ClusterEvent) -> tuple[ClusterEvent, ...]:
    """Return the single kinds that `events` combines."""
    return tuple(events)
