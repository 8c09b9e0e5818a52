"""The fields of pods and nodes that a decision reads; everything else in them is never decoded."""

from typing import Any

import msgspec

from allocation.pod import Container
from cluster.events import Reference
from cluster.reflector import ObjectMeta

FINISHED = frozenset({"Succeeded", "Failed"})


class Meta(ObjectMeta, rename="camel"):
    """Metadata of pods and nodes."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Port(msgspec.Struct, rename="camel"):
    """A container port; only one with a host port matters."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class PodContainer(Container, rename="camel"):
    """A container with its ports."""

    ports: list[Port] = []


class Expression(msgspec.Struct):
    """A label or field selector requirement."""

    key: str
    operator: str
    values: list[str] = []


class Term(msgspec.Struct, rename="camel"):
    """A node selector term: all expressions must hold."""

    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class NodeSelector(msgspec.Struct, rename="camel"):
    """Terms, one of which must hold."""

    node_selector_terms: list[Term] = []


class NodeAffinity(msgspec.Struct):
    """Node affinity; preferences do not decide whether a node fits."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodTerms(msgspec.Struct):
    """Inter-pod affinity, of which only the presence of a requirement is read."""

    required: list[Any] = msgspec.field(default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(msgspec.Struct, rename="camel"):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class Toleration(msgspec.Struct):
    """A taint that the pod bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel"):
    """A topology spread constraint, of which only its strictness is read."""

    when_unsatisfiable: str = "DoNotSchedule"


class Volume(msgspec.Struct, rename="camel"):
    """A volume, of which only what ties it to nodes is read."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None


class PodResources(msgspec.Struct):
    """Pod-level resources."""

    requests: dict[str, str] = {}


class PodSpec(msgspec.Struct, rename="camel"):
    """What a pod asks of a node."""

    containers: list[PodContainer] = []
    init_containers: list[PodContainer] = []
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    scheduling_gates: list[Any] = []
    overhead: dict[str, str] = {}
    resources: PodResources | None = None
    topology_spread_constraints: list[SpreadConstraint] = []
    volumes: list[Volume] = []
    resource_claims: list[Any] = []


class PodStatus(msgspec.Struct):
    """How far a pod is."""

    phase: str = "Pending"


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

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
        """How events name it."""
        return Reference("Pod", self.metadata.namespace, self.metadata.name, self.metadata.uid)

    def __str__(self) -> str:
        """As people write it: namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class Taint(msgspec.Struct):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct):
    """What a node keeps pods away by."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(msgspec.Struct):
    """What a node has to give."""

    allocatable: dict[str, str] = {}


class Node(msgspec.Struct):
    """A node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
