"""The fields of pods and nodes that scheduling depends on; all other fields are not decoded."""

import sys
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import TypeVar

import msgspec

from allocation.bindings import binding
from allocation.bindings.binding import ShareMode
from allocation.label_selector import Expression, LabelSelector
from allocation.limits import excess_of_annotations
from allocation.names import CONSTRAINT_KEYS, MAX_NAME_LENGTH, NODE_KEYS, POD_KEYS, SHORT_KEYS
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from cluster.metadata import ObjectMeta, Reference
from scheduler.pod_limits import excess_of_labels, excess_of_spec, excess_of_volumes

FINISHED = frozenset({"Succeeded", "Failed"})

PREEMPTS = "PreemptLowerPriority"
"""The preemption policy of pods and PriorityClasses that state none."""

_GATES = 8
"""The scheduling gates of a pod whose names are kept; the API server does not limit their number."""

_IMAGE_CHARACTERS = 512
"""More than the name of an image with its digest can have."""


H = TypeVar("H", bound=Hashable)


@lru_cache(maxsize=1024)
def _shared(value: H) -> H:
    """Return the first of all equal values, so that the others need not be kept in memory."""
    return value


class Present(msgspec.Struct, gc=False):
    """An object of which only the presence matters."""


class SchedulingGate(msgspec.Struct, gc=False):
    """What keeps a pod from being scheduled until a user or a controller removes it."""

    name: str = ""


class LabelledMeta(ObjectMeta, rename="camel", gc=False):
    """Metadata with labels, which selectors match."""

    labels: dict[str, str] = {}


class Meta(LabelledMeta, rename="camel", gc=False):
    """Metadata of pods and nodes."""

    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def _keep(self, keys: frozenset[str]) -> None:
        """Keep only annotations that are read here."""
        if not self.annotations.keys() <= keys:
            self.annotations = {key: self.annotations[key] for key in self.annotations.keys() & keys}


class PodMeta(Meta, gc=False):
    """Metadata of a pod; `excess` names the annotation that is too long to be kept."""

    excess: str = ""

    def __post_init__(self) -> None:
        """Keep only what is read, and of a value that is too long for any name only the first characters."""
        self._keep(POD_KEYS)
        self.excess = excess_of_annotations(self.annotations)
        for key in self.annotations.keys() & CONSTRAINT_KEYS:
            if self.excess:
                del self.annotations[key]
            else:
                self.annotations[key] = _shared(self.annotations[key])
        for key in self.annotations.keys() & SHORT_KEYS:
            self.annotations[key] = self.annotations[key][: MAX_NAME_LENGTH + 1]


class NodeMeta(Meta, gc=False):
    """Metadata of a node, with the share modes of its cards."""

    share_modes: dict[str, ShareMode] = {}

    def __post_init__(self) -> None:
        """Read the share modes from the annotations, of which only those of fixed names are kept."""
        self.share_modes = binding.share_modes(self.annotations)
        self._keep(NODE_KEYS)


class Port(msgspec.Struct, rename="camel", gc=False):
    """A container port; only one with a host port matters."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class PodContainer(Container, rename="camel", gc=False):
    """A container with its host ports and its image, whose name is empty if it is too long for any image."""

    ports: tuple[Port, ...] = ()
    image: str = ""

    def __post_init__(self) -> None:
        """Share the image, and requests and limits if they are equal, as those of cards are; keep only host ports."""
        self.image = sys.intern(self.image) if len(self.image) <= _IMAGE_CHARACTERS else ""
        if self.resources.requests == self.resources.limits:
            self.resources.requests = self.resources.limits
        if self.ports:
            self.ports = tuple(port for port in self.ports if port.host_port)


class Term(msgspec.Struct, rename="camel", gc=False):
    """A node selector term: all expressions must hold."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(msgspec.Struct, rename="camel", gc=False):
    """Node selector terms, one of which must hold."""

    node_selector_terms: tuple[Term, ...] = ()


class PreferredTerm(msgspec.Struct, gc=False):
    """A node selector term that adds its weight, 1 to 100, to the score of the nodes that it matches."""

    weight: int = 0
    preference: Term = msgspec.field(default_factory=Term)


class NodeAffinity(msgspec.Struct, gc=False):
    """Node affinity; preferences only order the nodes that fit."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, rename="camel", gc=False):
    """The pods that a pod must be near to, or apart from.

    The API server merged matchLabelKeys and mismatchLabelKeys into the selector when the pod was created.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(msgspec.Struct, rename="camel", gc=False):
    """A term that adds its weight, 1 to 100, to the score of the nodes near the pods that it matches."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(msgspec.Struct, gc=False):
    """Inter-pod affinity or anti-affinity; preferences only order the nodes that fit."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, rename="camel", gc=False):
    """The affinity of a pod to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of taints."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel", gc=False):
    """How evenly pods must be spread over the values of a node label."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class ClaimSource(msgspec.Struct, rename="camel", gc=False):
    """The PersistentVolumeClaim that a volume refers to."""

    claim_name: str = ""


class GcePersistentDisk(msgspec.Struct, rename="camel", gc=False):
    """A disk of Google Compute Engine."""

    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(msgspec.Struct, gc=False):
    """A volume of AWS Elastic Block Store."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(msgspec.Struct, rename="camel", gc=False):
    """A disk of Azure, which is Shared, Dedicated or Managed."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str = "Shared"


class CinderVolume(msgspec.Struct, gc=False):
    """A volume of OpenStack Cinder."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class IscsiVolume(msgspec.Struct, rename="camel", gc=False):
    """An iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RbdVolume(msgspec.Struct, rename="camel", gc=False):
    """An image of a Ceph RADOS block device."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class PortworxVolume(msgspec.Struct, gc=False):
    """A volume of Portworx, by its ID."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class Volume(msgspec.Struct, rename="camel", gc=False):
    """A volume, with the sources that restrict its pod's nodes; every node can mount the others."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None
    portworx_volume: PortworxVolume | None = None

    @property
    def sources(self) -> Iterator[msgspec.Struct]:
        """The sources that have fields."""
        clouds = (self.gce_persistent_disk, self.aws_elastic_block_store, self.azure_disk, self.cinder)
        yield from filter(None, (self.persistent_volume_claim, self.iscsi, self.rbd, self.portworx_volume, *clouds))

    @property
    def restricts_nodes(self) -> bool:
        """Whether some nodes cannot mount it, or a node can attach only a limited number of its kind."""
        return self != Volume(self.name)


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    """The spec of a pod."""

    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    preemption_policy: str = PREEMPTS
    termination_grace_period_seconds: int = 30
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: dict[str, str] = {}
    resources: Resources | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[Present, ...] = ()
    scheduling_group: Present | None = None
    workload_ref: Present | None = None
    excess: str = ""

    def __post_init__(self) -> None:
        """Drop the fields of a spec that exceeds a limit, which `excess` names; share the tolerations.

        Most pods have only the tolerations that admission adds. A pod that has a node keeps its containers, because
        their requests and host ports count; its requirements of nodes and its anti-affinity are dropped. Volumes that
        every node can mount, which nearly every pod has, are dropped as well, and all but one of the claims of
        devices, because only their presence matters.
        """
        self.excess = excess_of_spec(self)
        if too_long := excess_of_volumes(self.volumes):
            self.excess, self.volumes = too_long, ()
        if len(self.scheduling_gates) > _GATES:
            self.scheduling_gates = (*self.scheduling_gates[:_GATES], SchedulingGate("…"))
        if self.volumes:
            self.volumes = tuple(volume for volume in self.volumes if volume.restricts_nodes)
        self.resource_claims = self.resource_claims[:1]
        if self.excess:
            self.node_selector, self.tolerations, self.topology_spread_constraints = {}, (), ()
            self.affinity = None
            if not self.node_name:
                self.containers, self.init_containers, self.volumes = (), (), ()
        self.tolerations = _shared(self.tolerations)

    @property
    def gates(self) -> str:
        """The names of the gates, for messages."""
        return ", ".join(each.name for each in self.scheduling_gates)


class ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    """The resources that a node has granted to a container; they differ from its spec while the pod is resized."""

    name: str = ""
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None


class ExtendedResourceRequest(msgspec.Struct, rename="camel", gc=False):
    """An extended resource of a container that kube-scheduler satisfies by devices."""

    resource_name: str = ""


class ExtendedResourceClaimStatus(msgspec.Struct, rename="camel", gc=False):
    """The ResourceClaim by which kube-scheduler allocated devices for extended resources of a pod."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceRequest, ...] = ()

    @property
    def resources(self) -> list[str]:
        """The names of the resources."""
        return sorted({each.resource_name for each in self.request_mappings})


class PodStatus(msgspec.Struct, rename="camel", gc=False):
    """The status of a pod: its phase, nominated node, start and devices, and what its node granted its containers."""

    phase: str = "Pending"
    nominated_node_name: str = ""
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    start_time: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None


class Pod(msgspec.Struct, gc=False):
    """A pod, as far as scheduling depends on it; what is beyond the limits is not kept."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def __post_init__(self) -> None:
        """Drop the labels of a waiting pod that exceed the limit."""
        if not self.spec.node_name and (excess := excess_of_labels(self.metadata.labels)):
            self.metadata.excess, self.metadata.labels = excess, {}

    @property
    def excess(self) -> str:
        """The message about the part of the pod that exceeds a limit, or an empty string."""
        return self.spec.excess or self.metadata.excess

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.metadata.uid

    @property
    def finished(self) -> bool:
        """Whether its containers will never run again."""
        return self.status.phase in FINISHED

    @property
    def reference(self) -> Reference:
        """The reference to it in events."""
        return Reference("Pod", self.metadata.namespace, self.metadata.name, self.metadata.uid)

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class Taint(msgspec.Struct, gc=False):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    """The spec of a node: what keeps pods off it."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(msgspec.Struct, gc=False):
    """The status of a node: its allocatable resources."""

    allocatable: dict[str, str] = {}


class NodeImage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An image that a node has, by all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class Node(msgspec.Struct, gc=False):
    """A node; its images are not decoded, because thousands of nodes have fifty each."""

    metadata: NodeMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def images(self) -> tuple[NodeImage, ...]:
        """The images of the node, as far as they are decoded."""
        return ()


class StatusWithImages(NodeStatus, gc=False):
    """The status of a node: its allocatable resources and its images."""

    images: tuple[NodeImage, ...] = ()

    def __post_init__(self) -> None:
        """Share the images, because nodes have many in common."""
        self.images = tuple(map(_shared_image, self.images))


class NodeWithImages(Node, gc=False):
    """A node with its images, for schedulers that prefer nodes by them."""

    status: StatusWithImages = msgspec.field(default_factory=StatusWithImages)

    @property
    def images(self) -> tuple[NodeImage, ...]:
        """The images of the node."""
        return self.status.images


@lru_cache(maxsize=16384)
def _shared_image(image: NodeImage) -> NodeImage:
    """Return the first of all equal images."""
    return image


class PriorityClass(msgspec.Struct, rename="camel", gc=False):
    """The priority and the preemption policy of the pods that name it, or of all others."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    preemption_policy: str = PREEMPTS


class Namespace(msgspec.Struct, gc=False):
    """A namespace, with the labels that namespace selectors match."""

    metadata: LabelledMeta
