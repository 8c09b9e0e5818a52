"""The fields of storage objects that scheduling depends on; all other fields are not decoded."""

import msgspec

from allocation.label_selector import LabelSelector
from allocation.names import MAX_NAME_LENGTH
from cluster.metadata import ObjectMeta
from scheduler.pod_spec.constraints import NodeSelector

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_DEFAULT_CLASS = frozenset(
    {"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"}
)
_CLAIM_KEYS = frozenset({_BETA_CLASS, SELECTED_NODE, BIND_COMPLETED})
_VOLUME_KEYS = frozenset({_BETA_CLASS, BOUND_BY_CONTROLLER})


def name(text: str) -> str:
    """Return what a claim has in place of a name, which nothing else checks: one too long for any object is cut."""
    return text[: MAX_NAME_LENGTH + 1]


class OwnerReference(msgspec.Struct, gc=False):
    """The owner of an object."""

    uid: str = ""
    controller: bool | None = None


class ClaimMeta(ObjectMeta, rename="camel", gc=False):
    """The metadata of a claim."""

    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        """Keep only annotations that are read here, and of the owners the controller."""
        if self.annotations:
            read = self.annotations.keys() & _CLAIM_KEYS
            self.annotations = {key: name(self.annotations[key]) for key in read}
        self.owner_references = tuple(each for each in self.owner_references if each.controller)


class StorageAmount(msgspec.Struct, gc=False):
    """The storage that a claim requests, or that a volume has, as a Quantity."""

    storage: str | int | float = "0"


class StorageRequest(msgspec.Struct, gc=False):
    """The resources that a claim requests."""

    requests: StorageAmount = msgspec.field(default_factory=StorageAmount)


class ClaimSpec(msgspec.Struct, rename="camel", gc=False):
    """The spec of a claim.

    Attributes:
        is_oversized: whether its selector exceeds a limit; nothing of it is kept then, and it gets no volume.
    """

    access_modes: frozenset[str] = frozenset()
    selector: LabelSelector | None = None
    resources: StorageRequest = msgspec.field(default_factory=StorageRequest)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    is_oversized: bool = False

    def __post_init__(self) -> None:
        """Drop a selector that exceeds a limit, and most of a name that is too long for any volume."""
        self.is_oversized = self.selector is not None and self.selector.is_oversized
        if self.is_oversized:
            self.selector = None
        self.volume_name = name(self.volume_name)


class ClaimStatus(msgspec.Struct, gc=False):
    """The status of a claim."""

    phase: str = "Pending"


class Claim(msgspec.Struct, gc=False):
    """A PersistentVolumeClaim."""

    metadata: ClaimMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)

    @property
    def storage_class(self) -> str:
        """The name of its class; an annotation of old clusters comes first."""
        return self.metadata.annotations.get(_BETA_CLASS, self.spec.storage_class_name or "")

    @property
    def is_bound(self) -> bool:
        """Whether it has a volume, and the volume has it."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class VolumeMeta(ObjectMeta, rename="camel", gc=False):
    """The metadata of a PersistentVolume."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        """Keep only annotations that are read here."""
        if self.annotations:
            self.annotations = {key: self.annotations[key] for key in self.annotations.keys() & _VOLUME_KEYS}


class ClaimReference(msgspec.Struct, gc=False):
    """The claim that a volume is bound to, or reserved for if `uid` is empty."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(msgspec.Struct, rename="camel", gc=False):
    """The volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class InTreeId(msgspec.Struct, rename="camel", gc=False):
    """The identifier of a volume of a driver that was part of Kubernetes; each driver has a name of its own for it."""

    pd_name: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str = "Shared"


class VolumeNodeAffinity(msgspec.Struct, gc=False):
    """The nodes that can use a volume."""

    required: NodeSelector | None = None


class VolumeSpec(msgspec.Struct, rename="camel", gc=False):
    """The spec of a PersistentVolume."""

    capacity: StorageAmount = msgspec.field(default_factory=StorageAmount)
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: InTreeId | None = None
    aws_elastic_block_store: InTreeId | None = None
    azure_disk: InTreeId | None = None
    cinder: InTreeId | None = None
    portworx_volume: InTreeId | None = None


class VolumeStatus(msgspec.Struct, gc=False):
    """The status of a PersistentVolume."""

    phase: str = "Pending"


class PersistentVolume(msgspec.Struct, gc=False):
    """A PersistentVolume, with what decides which pods and nodes can use it."""

    metadata: VolumeMeta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)

    @property
    def storage_class(self) -> str:
        """The name of its class; an annotation of old clusters comes first."""
        return self.metadata.annotations.get(_BETA_CLASS, self.spec.storage_class_name)


class TopologyExpression(msgspec.Struct, gc=False):
    """A label of a node, and the values that it may have."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(msgspec.Struct, rename="camel", gc=False):
    """Expressions that must all hold."""

    match_label_expressions: tuple[TopologyExpression, ...] = ()


class ClassMeta(ObjectMeta, rename="camel", gc=False):
    """The metadata of a StorageClass."""

    annotations: dict[str, str] = {}
    creation_timestamp: str = ""

    def __post_init__(self) -> None:
        """Keep only annotations that are read here."""
        if self.annotations:
            self.annotations = {key: self.annotations[key] for key in self.annotations.keys() & _DEFAULT_CLASS}


class StorageClass(msgspec.Struct, rename="camel", gc=False):
    """A StorageClass: how its volumes are provisioned, and when they are bound."""

    metadata: ClassMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether claims that name no class may get this one when they are created."""
        return "true" in self.metadata.annotations.values()


class NodeAllocatable(msgspec.Struct, gc=False):
    """How many volumes of a driver a node can attach."""

    count: int | None = None


class CsiNodeDriver(msgspec.Struct, rename="camel", gc=False):
    """A CSI driver that runs on a node."""

    name: str = ""
    allocatable: NodeAllocatable | None = None


class CsiNodeMeta(ObjectMeta, rename="camel", gc=False):
    """The metadata of a CSINode."""

    annotations: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Keep only the annotation that is read here."""
        if self.annotations:
            self.annotations = {key: self.annotations[key] for key in self.annotations.keys() & {MIGRATED_PLUGINS}}


class CsiNodeSpec(msgspec.Struct, gc=False):
    """The CSI drivers of a node; a kubelet without any writes null."""

    drivers: tuple[CsiNodeDriver, ...] | None = ()


class CsiNode(msgspec.Struct, gc=False):
    """What CSI drivers say about a node, which has the same name."""

    metadata: CsiNodeMeta
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)


class CsiDriverSpec(msgspec.Struct, rename="camel", gc=False):
    """Whether a driver reports its capacity."""

    storage_capacity: bool | None = None


class CsiDriver(msgspec.Struct, gc=False):
    """A CSI driver that is installed in the cluster."""

    metadata: ObjectMeta
    spec: CsiDriverSpec = msgspec.field(default_factory=CsiDriverSpec)


class StorageCapacity(msgspec.Struct, rename="camel", gc=False):
    """A CSIStorageCapacity: the free capacity of a class for the nodes that `node_topology` selects."""

    metadata: ObjectMeta
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | None = None
    maximum_volume_size: str | None = None


class AttachedSource(msgspec.Struct, rename="camel", gc=False):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, rename="camel", gc=False):
    """Which volume a driver attaches to which node."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = msgspec.field(default_factory=AttachedSource)


class VolumeAttachment(msgspec.Struct, gc=False):
    """A volume that is attached to a node, or is to be."""

    metadata: ObjectMeta
    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)
