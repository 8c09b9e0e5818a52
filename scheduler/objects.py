"""The objects that scheduling depends on, pods and nodes above all; other fields of theirs are not decoded."""

import itertools
import sys
from collections.abc import Mapping

import msgspec

from allocation import burst
from allocation.bindings import binding
from allocation.bindings.binding import ShareMode
from allocation.limits import excess_of_annotations
from allocation.names import CONSTRAINT_KEYS, LIMITS, MAX_NAME_LENGTH, NODE_KEYS, POD_KEYS, RESIZE, SHORT_KEYS
from allocation.pod import Resources
from allocation.quantity import Quantity
from allocation.wire.resize_record import LONGEST_WISH
from cluster.metadata import ObjectMeta, Reference
from scheduler.node_status import NodeImage, NodeStatus, StatusWithImages
from scheduler.pod_spec.limits import excess_of_labels
from scheduler.pod_spec.shared_values import shared, shared_tuple
from scheduler.pod_spec.spec import PREEMPTS, PodSpec

FINISHED = frozenset({"Succeeded", "Failed"})

_UID_CHARACTERS = 64
"""More than a UID has."""


class LabelledMeta(ObjectMeta, rename="camel", gc=False):
    """Metadata with labels, which selectors match."""

    labels: Mapping[str, str] = {}


class Meta(LabelledMeta, rename="camel", gc=False):
    """Metadata of pods and nodes."""

    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def _keep(self, keys: frozenset[str]) -> None:
        """Keep only annotations that are read here."""
        if not self.annotations.keys() <= keys:
            self.annotations = {key: self.annotations[key] for key in self.annotations.keys() & keys}


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An owner of an object; if it controls a pod, it creates another one when the pod is gone."""

    kind: str = ""
    uid: str = ""
    controller: bool = False


def _is_short(owner: Owner) -> bool:
    """Whether the names of an owner are no longer than those of objects that exist."""
    return len(owner.kind) <= MAX_NAME_LENGTH and len(owner.uid) <= _UID_CHARACTERS


class PodMeta(Meta, rename="camel", gc=False):
    """Metadata of a pod; `excess` names the annotation that is too long to be kept."""

    owner_references: tuple[Owner, ...] = ()
    excess: str = ""

    @property
    def controller(self) -> Owner | None:
        """What creates another pod when this one is gone, if anything does."""
        return self.owner_references[0] if self.owner_references else None

    def __post_init__(self) -> None:
        """Keep only what is read, and of a value that is too long for any name only the first characters."""
        self._keep(POD_KEYS)
        self.namespace = sys.intern(self.namespace)
        if self.owner_references:
            controllers = (each for each in self.owner_references if each.controller and _is_short(each))
            self.owner_references = shared_tuple(tuple(itertools.islice(controllers, 1)))
        self.excess = excess_of_annotations(self.annotations)
        for key in self.annotations.keys() & CONSTRAINT_KEYS:
            if self.excess:
                del self.annotations[key]
            else:
                self.annotations[key] = sys.intern(self.annotations[key])
        for key in self.annotations.keys() & SHORT_KEYS:
            self.annotations[key] = self.annotations[key][: MAX_NAME_LENGTH + 1]
        if RESIZE in self.annotations:
            self.annotations[RESIZE] = self.annotations[RESIZE][: LONGEST_WISH + 1]
        if LIMITS in self.annotations:
            self.annotations[LIMITS] = sys.intern(self.annotations[LIMITS][: burst.LONGEST + 1])


class NodeMeta(Meta, gc=False):
    """Metadata of a node, with the share modes of its cards."""

    share_modes: dict[str, ShareMode] = {}

    def __post_init__(self) -> None:
        """Read the share modes from the annotations, of which only those of fixed names are kept."""
        self.share_modes = binding.share_modes(self.annotations)
        self._keep(NODE_KEYS)


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


class PodCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition of a pod, without its message."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


_NO_CONDITION = PodCondition()
_CONDITIONS = 64
"""The conditions of a pod that are searched; real pods have less than ten."""


class PodStatus(msgspec.Struct, rename="camel", gc=False):
    """The status of a pod: its phase, nominated node, start and devices, and what its node granted its containers.

    Of the conditions of a waiting pod only PodScheduled is kept.
    """

    phase: str = "Pending"
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    start_time: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Mapping[str, Quantity] = {}
    resources: Resources | None = None


class Pod(msgspec.Struct, gc=False):
    """A pod, as far as scheduling depends on it; what is beyond the limits is not kept."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def __post_init__(self) -> None:
        """Drop the labels of a waiting pod that exceed the limit, and conditions that are not read; share the rest."""
        if self.status.conditions:
            self.status.conditions = () if self.spec.node_name else _scheduled(self.status.conditions)
        if not self.spec.node_name and (excess := excess_of_labels(self.metadata.labels)):
            self.metadata.excess, self.metadata.labels = excess, {}
        self.metadata.labels = shared(self.metadata.labels)
        self.status.allocated_resources = shared(self.status.allocated_resources)

    @property
    def excess(self) -> str:
        """The message about the part of the pod that exceeds a limit, or an empty string."""
        return self.spec.excess or self.metadata.excess

    @property
    def unscheduled_since(self) -> str:
        """The timestamp from which a pod without a node has waited for one; empty for one that had scheduling gates.

        A pod has waited since its condition PodScheduled is False, or since its creation if it has no such condition.
        """
        found = next(iter(self.status.conditions), _NO_CONDITION)
        if found.status != "False":
            return self.metadata.creation_timestamp or ""
        return (found.last_transition_time or "") if found.reason != "SchedulingGated" else ""

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.metadata.uid

    @property
    def finished(self) -> bool:
        """Whether its containers will never run again."""
        return self.status.phase in FINISHED

    @property
    def succeeded(self) -> bool:
        """Whether its containers have ended, all of them well."""
        return self.status.phase == "Succeeded"

    @property
    def reference(self) -> Reference:
        """The reference to it in events."""
        return Reference("Pod", self.metadata.namespace, self.metadata.name, self.metadata.uid)

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def _scheduled(conditions: tuple[PodCondition, ...]) -> tuple[PodCondition, ...]:
    """Return the condition PodScheduled, if it is there."""
    return tuple(itertools.islice((each for each in conditions[:_CONDITIONS] if each.type == "PodScheduled"), 1))


class Taint(msgspec.Struct, gc=False):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    """The spec of a node: what keeps pods off it."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Node(msgspec.Struct, gc=False):
    """A node; its images are not decoded, because thousands of nodes have fifty each."""

    metadata: NodeMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def images(self) -> tuple[NodeImage, ...]:
        """The images of the node, as far as they are decoded."""
        return ()


class NodeWithImages(Node, gc=False):
    """A node with its images, for schedulers that prefer nodes by them."""

    status: StatusWithImages = msgspec.field(default_factory=StatusWithImages)

    @property
    def images(self) -> tuple[NodeImage, ...]:
        """The images of the node."""
        return self.status.images


class PriorityClass(msgspec.Struct, rename="camel", gc=False):
    """The priority and the preemption policy of the pods that name it, or of all others."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    preemption_policy: str = PREEMPTS


class Namespace(msgspec.Struct, gc=False):
    """A namespace, with the labels that namespace selectors match."""

    metadata: LabelledMeta
