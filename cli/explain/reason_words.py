"""The meaning of each reason code, for readers who see it for the first time."""

from collections.abc import Collection
from typing import Final

from allocation.reasons import CardReason, NodeReason, PodReason

WORDS: Final = {
    CardReason.FITS.name: "fits",
    CardReason.CardNotHealth.name: "its agent reports it as unhealthy",
    CardReason.CardCordoned.name: "an administrator cordoned it (kubectl gpu uncordon)",
    CardReason.CardTypeMismatch.name: "the pod's annotations exclude its model or mode",
    CardReason.NumaNotFit.name: "too few cards of one NUMA node fit",
    CardReason.CardUuidMismatch.name: "the pod's annotations exclude its UUID, or GPUBindings leave it to other pods",
    CardReason.CardTimeSlicingExhausted.name: "all of its slots are in use",
    CardReason.ExclusiveDeviceAllocateConflict.name: "it is in use, and the pod requests it exclusively",
    CardReason.ResourceQuotaNotFit.name: "the pod would exceed the namespace's ResourceQuota, or its GpuQueue's limits",
    CardReason.CardInsufficientMemory.name: "it has less free memory than requested",
    CardReason.CardInsufficientCore.name: "it has less free compute than requested",
    CardReason.CardComputeUnitsExhausted.name: "all of its compute is reserved",
    CardReason.CardMigTopologyInfeasible.name: "it has no free place for a large enough MIG instance",
    CardReason.AllocatedCardsInsufficientRequest.name: "it fits, but too few other cards of the node do",
    CardReason.ModeNotFit.name: "its MIG mode does not suit the GpuClaim, or HAMi's plugin creates its instances",
    CardReason.CardTopologyMismatch.name: "it fits, and enough others do, but no set of them is connected as required",
    NodeReason.NodeInsufficientDevice: "it has fewer cards than one container requests",
    NodeReason.NodeUnregistered: "no agent reports its cards",
    NodeReason.NodeNameMismatch: "the pod names another node",
    NodeReason.NodeUnschedulable: "an administrator cordoned it (kubectl uncordon)",
    NodeReason.NodeTainted: "the pod does not tolerate one of its taints",
    NodeReason.NodeSelectorMismatch: "its labels do not match the pod's node selector or affinity",
    NodeReason.NodeInsufficientResource: "too little CPU, memory, or whatever the reason names, is free",
    NodeReason.NodeTooManyPods: "it runs as many pods as it may",
    NodeReason.NodePortTaken: "a host port of the pod is in use",
    NodeReason.PodAffinityMismatch: "no pod that the pod's affinity requires runs there",
    NodeReason.PodAntiAffinityMismatch: "anti-affinity keeps the pod away from a pod that runs there",
    NodeReason.TopologySpreadMismatch: "the pod's replicas would be spread too unevenly",
    NodeReason.VolumeNodeAffinityConflict: "a volume of the pod cannot be used there",
    NodeReason.VolumeZoneMismatch: "a volume of the pod is in another zone",
    NodeReason.VolumeNotFound: "a claim of the pod is bound to a volume that does not exist",
    NodeReason.VolumeNotAvailable: "no volume fits a claim of the pod there, and none can be provisioned there",
    NodeReason.StorageCapacityInsufficient: "its storage has too little capacity for a claim of the pod",
    NodeReason.VolumeLimitExceeded: "it cannot attach more volumes of a driver",
    NodeReason.VolumeInUse: "another pod uses a volume that only one may use",
    NodeReason.AgentSilent: "its agent has stopped renewing its Lease",
    NodeReason.DevicePluginGone: "its device plugin has stopped reporting",
    NodeReason.DevicePluginFull: "its device plugin advertises too few devices",
    NodeReason.NodeNotLockable: "HAMi's device plugin serves it, and the scheduler may not lock it",
    NodeReason.DriverMissing: "the driver of its cards does not answer",
    NodeReason.NoCards: "its driver lists no card",
    NodeReason.DeliveryUnavailable: "its container runtime cannot give containers their cards",
    NodeReason.ContainerNameTooLong: "the name of a GPU container is too long for it",
    NodeReason.BoundCountMismatch: "its device plugin gives as many cards as the pod requests, and others are bound",
    NodeReason.GangBlockMismatch: "it is not in the block where the pod's gang has to be",
    NodeReason.GangNotStartable: "its device plugin cannot start the pods of a gang together",
    NodeReason.SharedClaimNotLimitable: "its device plugin cannot limit containers that share a GpuClaim",
    NodeReason.NodeNotBound: "no card there is bound to the pod's application",
    NodeReason.InsufficientGPU: "too few of the cards there that are bound to the pod's application are left",
    NodeReason.FabricMismatch: "it lacks the RDMA ports or the GPUDirect Storage that the GpuClaim requires",
    NodeReason.UncountedPod: "a pod uses cards there, and its allocation is unknown",
    NodeReason.ForeignDraDriver: "another DRA driver has allocated a device there that cannot be counted",
    NodeReason.InventoryRefused: "its report of cards is invalid",
    NodeReason.StaticAllocationMismatch: "the pod brought an allocation for another node, or one that does not fit",
    PodReason.PodHeld: "the pod must be changed",
    PodReason.DraAllocated: "a DeviceClass satisfies a resource of the pod, too",
    PodReason.MigInstanceAsked: "an agent is creating a MIG instance for it",
    PodReason.NoNode: "the cluster has no nodes",
    PodReason.VolumeClaimNotReady: "a PersistentVolumeClaim of the pod is missing or not bound",
    PodReason.GpuClaimNotFound: "the GpuClaim of the pod does not exist",
    PodReason.NoOwnerApplication: "the pod has no label of an application, which every GPU pod needs",
    PodReason.NoGpuBinding: "no GPUBinding gives a card to the pod's application",
    PodReason.QueueUnknown: "the GpuQueue that the pod or its namespace names does not exist",
    PodReason.QueueForbidden: "the GpuQueue that the pod names is not for its namespace",
    PodReason.QueueSuspended: "an administrator suspended the pod's GpuQueue",
    PodReason.PodQuotaNotFit: "as many pods have a node as the pod's GpuQueue or a GpuQuota of its namespace allows",
    PodReason.GangIncomplete: "other pods of its gang do not exist yet, or are being bound",
    PodReason.PodGroupNotFound: "the PodGroup of the pod does not exist",
    PodReason.QuotaSingleExceeded: "the pod requests more than a GpuQuota of its namespace allows a single pod",
    PodReason.AmountNotStated: "a quota limits memory or cores, and a container of the pod requests none",
}
"""The meaning by code. The same codes are in events, in metrics and in docs/troubleshooting.md."""
_UNKNOWN: Final = "see the reason itself"
"""The meaning of a code that only a newer scheduler knows."""


def meaning(codes: Collection[str]) -> str:
    """Return the meaning of the codes of a node's reason."""
    return "; ".join(words for code, words in WORDS.items() if code in codes) or _UNKNOWN
