"""The fields of pods and nodes that a decision reads; everything else in them is never decoded."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from allocation.names import is_environment_key
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from cluster.metadata import ObjectMeta, Reference

FINISHED = frozenset({"Succeeded", "Failed"})


H = TypeVar("H", bound=Hashable)


@lru_cache(maxsize=1024)
def _shared(value: H) -> H:
    """Answer the first of all equal values that were seen, so that the others need not be kept."""
    return value


class Present(msgspec.Struct, gc=False):
    """An object of which nothing matters but that it is there."""


class LabelledMeta(ObjectMeta, rename="camel", gc=False):
    """Metadata that selectors look at."""

    labels: dict[str, str] = {}


class Meta(LabelledMeta, rename="camel", gc=False):
    """Metadata of pods and nodes."""

    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        """Forget the environment, which is long, the pod's whole life, and read by kubelets only."""
        if any(map(is_environment_key, self.annotations)):
            self.annotations = {key: text for key, text in self.annotations.items() if not is_environment_key(key)}


class Port(msgspec.Struct, rename="camel", gc=False):
    """A container port; only one with a host port matters."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class PodContainer(Container, rename="camel", gc=False):
    """A container with its ports."""

    ports: tuple[Port, ...] = ()

    def __post_init__(self) -> None:
        """Keep what is said twice once: requests of cards equal their limits."""
        if self.resources.requests == self.resources.limits:
            self.resources.requests = self.resources.limits


class Expression(msgspec.Struct, frozen=True, gc=False):
    """A label or field selector requirement."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, rename="camel", gc=False):
    """Which labels something must have."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class Term(msgspec.Struct, rename="camel", gc=False):
    """A node selector term: all expressions must hold."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(msgspec.Struct, rename="camel", gc=False):
    """Terms, one of which must hold."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(msgspec.Struct, gc=False):
    """Node affinity; preferences do not decide whether a node fits."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(msgspec.Struct, rename="camel", gc=False):
    """Pods near which, or far from which, a pod must be.

    The API server has written matchLabelKeys and mismatchLabelKeys into the selector when the pod was created.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(msgspec.Struct, gc=False):
    """Inter-pod affinity or anti-affinity; preferences do not decide whether a node fits."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, rename="camel", gc=False):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A taint that the pod bears."""

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


class Volume(msgspec.Struct, rename="camel", gc=False):
    """A volume, of which only the sources that every node has are read; all others tie a pod to nodes."""

    name: str = ""
    config_map: Present | None = None
    downward_api: Present | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: Present | None = None
    git_repo: Present | None = None
    host_path: Present | None = None
    image: Present | None = None
    nfs: Present | None = None
    projected: Present | None = None
    secret: Present | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    """What a pod asks of a node."""

    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[Any, ...] = ()
    overhead: dict[str, str] = {}
    resources: Resources | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[Present, ...] = ()
    scheduling_group: Present | None = None
    workload_ref: Present | None = None

    def __post_init__(self) -> None:
        """Keep once what almost every pod has: the tolerations that admission adds."""
        self.tolerations = _shared(self.tolerations)


class ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    """What a node has granted to a container, which differs from its spec while the pod is being resized."""

    name: str = ""
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None


class PodStatus(msgspec.Struct, rename="camel", gc=False):
    """How far a pod is, and what its node has granted to it."""

    phase: str = "Pending"
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None


class Pod(msgspec.Struct, gc=False):
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


class Taint(msgspec.Struct, gc=False):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    """What a node keeps pods away by."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(msgspec.Struct, gc=False):
    """What a node has to give."""

    allocatable: dict[str, str] = {}


class Node(msgspec.Struct, gc=False):
    """A node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(msgspec.Struct, gc=False):
    """A namespace."""

    metadata: LabelledMeta
