"""Why a card, a node or a pod as a whole keeps a pod from being placed.

Reasons are data: whatever rejects a card or a node makes one of these, and events, metrics, the API and the command
line all print it. A code is the same for all rejections of its kind, so that it can be counted and looked up
(docs/troubleshooting.md).
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec


class CardReason(enum.IntEnum):
    """Verdict on one card; the first test that fails wins, in the order of allocation/placement/fit.py."""

    FITS = 0
    CardNotHealth = 1
    CardCordoned = 2
    CardTypeMismatch = 3
    NumaNotFit = 4
    CardUuidMismatch = 5
    CardTimeSlicingExhausted = 6
    ExclusiveDeviceAllocateConflict = 7
    ResourceQuotaNotFit = 8
    CardInsufficientMemory = 9
    CardInsufficientCore = 10
    CardComputeUnitsExhausted = 11
    CardMigTopologyInfeasible = 12
    """The card is in MIG mode and has no place for an instance that is large enough."""
    AllocatedCardsInsufficientRequest = 13
    """The card fits, but too few other cards of the node do."""
    ModeNotFit = 14
    """The pod accepts only undivided cards, or only MIG instances, and the card is of the other kind; or the card is in
    MIG mode and HAMi's device plugin makes its instances: it makes none for our pods."""
    CardTopologyMismatch = 15
    """The card fits, and enough others of the node do, but no set of them is connected as the pod requires."""
    CardModeLocked = 16
    """Pods of another isolation hold parts of the card, and `allocation.isolation_policy` is `dynamic`."""
    CardInsufficientTflops = 17
    """Too few TFLOPs of the card are free, or those of its model are not known (`allocation.models`)."""


class _Code(enum.StrEnum):
    """A code whose value is its name."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name


class NodeReason(_Code):
    """Why a node as a whole does not take a pod."""

    NodeInsufficientDevice = enum.auto()
    """The node has fewer cards than one container asks for."""
    NodeGpuPodsExhausted = enum.auto()
    """The node has as many pods with cards as `allocation.most_pods_per_node` allows."""
    NodeUnregistered = enum.auto()
    """No agent reports cards for the node."""
    NodeNameMismatch = enum.auto()
    NodeUnschedulable = enum.auto()
    NodeTainted = enum.auto()
    NodeSelectorMismatch = enum.auto()
    NodeInsufficientResource = enum.auto()
    """CPU, memory, ephemeral storage, or an extended resource that the ledger does not count."""
    NodeTooManyPods = enum.auto()
    NodePortTaken = enum.auto()
    PodAffinityMismatch = enum.auto()
    PodAntiAffinityMismatch = enum.auto()
    TopologySpreadMismatch = enum.auto()
    VolumeNodeAffinityConflict = enum.auto()
    """A PersistentVolume of the pod cannot be used on the node."""
    VolumeZoneMismatch = enum.auto()
    """A PersistentVolume of the pod is in another zone or region."""
    VolumeNotFound = enum.auto()
    """A claim of the pod is bound to a PersistentVolume that does not exist."""
    VolumeNotAvailable = enum.auto()
    """No PersistentVolume fits an unbound claim of the pod there, and none can be provisioned there."""
    StorageCapacityInsufficient = enum.auto()
    """The storage that the node reaches is too small for an unbound claim of the pod."""
    VolumeLimitExceeded = enum.auto()
    """The node cannot attach as many volumes of one CSI driver."""
    VolumeInUse = enum.auto()
    """Another pod uses a volume that only one pod, or one node, may use."""
    AgentSilent = enum.auto()
    """The Lease of the node's agent has expired."""
    DevicePluginGone = enum.auto()
    """HAMi's device plugin is gone or stale, and no agent reports the node's cards."""
    DevicePluginFull = enum.auto()
    """The node's device plugin advertises too few devices."""
    NodeNotLockable = enum.auto()
    """HAMi's device plugin serves the node, and the scheduler may not lock it."""
    DriverMissing = enum.auto()
    """The driver of the node's cards does not answer; its agent reports the cards that it had last."""
    NoCards = enum.auto()
    """The driver of the node lists no card; its agent reports the cards that it had last."""
    DeliveryUnavailable = enum.auto()
    """The node's container runtime cannot give containers the cards that they are allocated."""
    ContainerNameTooLong = enum.auto()
    """The node delivers cards by an annotation whose key cannot hold the name of a container of the pod."""
    DevicePluginMismatch = enum.auto()
    """The agent is the node's device plugin, and the kubelet would give the pod other devices than it is allocated."""
    SharedClaimNotLimitable = enum.auto()
    """HAMi's device plugin serves the node, and cannot limit the containers that share a GpuClaim together."""
    GangBlockMismatch = enum.auto()
    """The node is not in the block where the pod's gang has to be."""
    GangNotStartable = enum.auto()
    """HAMi's device plugin serves the node, and cannot start the pods of a gang together."""
    BoundCountMismatch = enum.auto()
    """HAMi's device plugin serves the node, and the pod requests another number of cards than it would get there."""
    NodeNotBound = enum.auto()
    """No card of the node is bound to the pod's application."""
    InsufficientGPU = enum.auto()
    """Too few of the cards of the node that are bound to the pod's application are left."""
    FabricMismatch = enum.auto()
    """The pod's GpuClaim requires RDMA ports, or GPUDirect Storage, that the node does not have."""
    IsolationUnavailable = enum.auto()
    """Nothing on the node can enforce the pod's limits in the way that its isolation says."""
    UncountedPod = enum.auto()
    """A pod on the node uses cards without an allocation that can be read."""
    ForeignDraDriver = enum.auto()
    """A device of another DRA driver is allocated on the node, and is not a whole card of the node's report."""
    NodeDraining = enum.auto()
    """The node is handed over to DRA, or comes back from it."""
    AllocatedByDra = enum.auto()
    """Kubernetes allocates the node's cards by DRA."""
    InventoryRefused = enum.auto()
    """The report or the annotation about the node's cards is invalid, or contradicts another node."""
    NodeRequestOpen = enum.auto()
    """The node came in answer to a request for one, which an autoscaler would answer again if a pod were placed now."""
    StaticAllocationMismatch = enum.auto()
    """The pod brought its allocation, and it is for another node, or this one cannot give it."""


CLOSING: Final = (
    NodeReason.AgentSilent,
    NodeReason.DevicePluginGone,
    NodeReason.NodeNotLockable,
    NodeReason.DriverMissing,
    NodeReason.NoCards,
    NodeReason.DeliveryUnavailable,
    NodeReason.UncountedPod,
    NodeReason.ForeignDraDriver,
    NodeReason.NodeDraining,
    NodeReason.AllocatedByDra,
    NodeReason.InventoryRefused,
    NodeReason.NodeRequestOpen,
)
"""The reasons for which a node takes no GPU pod at all."""


class PodReason(_Code):
    """Why a pod is not placed, whatever the nodes are."""

    PodHeld = enum.auto()
    """The pod uses a field that is not evaluated, or one that cannot be read."""
    MigInstanceAsked = enum.auto()
    """An agent makes the MIG instance that the pod waits for."""
    NoNode = enum.auto()
    """The cluster has no node at all."""
    VolumeClaimNotReady = enum.auto()
    """A PersistentVolumeClaim of the pod does not exist, is being deleted, or waits to be bound."""
    GpuClaimNotFound = enum.auto()
    """The GpuClaim that the pod names does not exist in its namespace."""
    NoOwnerApplication = enum.auto()
    """Every GPU pod needs the label of an application, and the pod has none."""
    NoGpuBinding = enum.auto()
    """No GPUBinding gives the pod's application a card."""
    QueueUnknown = enum.auto()
    """The GpuQueue that the pod or its namespace names does not exist."""
    QueueForbidden = enum.auto()
    """The GpuQueue that the pod names is not for its namespace."""
    QueueSuspended = enum.auto()
    """The pod's GpuQueue takes no new pods."""
    PodQuotaNotFit = enum.auto()
    """As many pods of the pod's GpuQueue, or of its namespace, have a node as it or a GpuQuota allows."""
    QuotaSingleExceeded = enum.auto()
    """The pod requests more than a GpuQuota of its namespace allows a single pod, or one card of it."""
    AmountNotStated = enum.auto()
    """A quota or the pod's GpuQueue limits memory or cores, and a container of the pod requests none."""
    GangIncomplete = enum.auto()
    """Fewer pods of the pod's gang exist than have to get nodes together, or others of them are being bound."""
    PodGroupNotFound = enum.auto()
    """The PodGroup that the pod names does not exist, and nothing else says how large the pod's gang is."""
    DraAllocated = enum.auto()
    """kube-scheduler allocated devices to the pod for a resource that it gets from the extender as well."""
    KubeSchedulerSilent = enum.auto()
    """The pod has `resourceClaims` and is handed over to kube-scheduler, and none runs."""


_PUBLIC_MESSAGES: Final[Mapping[str, str]] = {
    NodeReason.UncountedPod: "a pod runs here uncounted ('kubectl gpu top' names it to administrators)",
    NodeReason.ForeignDraDriver: "another DRA driver's device is in use here ('kubectl gpu preflight' names its claim)",
}
"""By code, the replacement of messages that name another pod, for readers without rights in its namespace."""


class NodeRejection(msgspec.Struct, frozen=True):
    """Why a node as a whole does not take a pod.

    Attributes:
        code: the reason.
        message: the details, in kube-scheduler's words where it has some; empty where the code says it all.
        resolvable: whether pods that finish or are evicted could change it.
    """

    code: NodeReason
    message: str = ""
    resolvable: bool = True

    @property
    def text(self) -> str:
        """The message, or the code if the message is empty."""
        return self.message or self.code.value

    @property
    def coded_text(self) -> str:
        """The message after its code."""
        return _coded(self.code, self.message)

    @property
    def public_text(self) -> str:
        """The same as `text` without the name of another pod."""
        return _PUBLIC_MESSAGES.get(self.code, self.text)

    @property
    def public_coded_text(self) -> str:
        """The same as `coded_text` without the name of another pod."""
        return public_coded_text(self.code, self.coded_text)


def public_coded_text(code: str, coded_text: str) -> str:
    """Return the text of a rejection with this code, without the name of another pod."""
    message = _PUBLIC_MESSAGES.get(code, "")
    return _coded(code, message) if message else coded_text


def _coded(code: str, message: str) -> str:
    return f"{code}: {message}" if message else str(code)


ReasonCounts = Mapping[CardReason, int]


def summary(counts: ReasonCounts, cards: int) -> str:
    """Return a node's reasons as HAMi prints and sorts them: `3/8 CardNotHealth, 5/8 CardInsufficientMemory`."""
    return ", ".join(sorted(f"{count}/{cards} {reason.name}" for reason, count in counts.items()))
