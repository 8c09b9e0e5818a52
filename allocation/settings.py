"""The settings of requests and placement, which are the same for every process."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from allocation.errors import AllocationError
from allocation.fairness.resreq import Requirement
from allocation.sharing import SharingRules

NodePolicy = Literal["binpack", "spread"]
CardPolicy = Literal["binpack", "spread", "numa", "mutex", "topology-aware"]
CorePolicy = Literal["default", "force", "disable"]
IsolationPolicy = Literal["static", "dynamic"]
ResourceClaimsPolicy = Literal["hold", "hand-over"]
MOST_TFLOPS: Final = 1_000_000
"""TFLOPs of a card, and so of a container on each card, at most: three orders above what there is."""
UnknownTopology = Literal["treat-as-worst", "reject"]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of slots, cores and memory in the score of a card."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class ResourceNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resource names that users write; HAMi's by default (docs/interfaces.md)."""

    count: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    memory_percentage: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    tflops: str = "nvidia.com/gputflops"
    priority: str = "nvidia.com/priority"

    def gpu_resources(self) -> tuple[str, str, str, str, str]:
        """Return the names by which a container requests a GPU."""
        return (self.count, self.memory, self.memory_percentage, self.cores, self.tflops)

    def managed(self) -> tuple[str, ...]:
        """Return every name that tranche manages, so that a kubelet need not have capacity for it."""
        return (*self.gpu_resources(), self.priority)


class TopologySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How connections between cards are evaluated.

    Attributes:
        unknown: what becomes of cards whose connection is not known where a pod requires one: `treat-as-worst` gives
            the connection the highest tier, `reject` never gives a pod such cards together.
    """

    unknown: UnknownTopology = "treat-as-worst"

    @property
    def accepts_unknown(self) -> bool:
        """Whether cards whose connection is not known can do for a pod that requires one."""
        return self.unknown == "treat-as-worst"


BindingsMode = Literal["off", "labelled", "required"]


class BindingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pods get only the cards that GPUBindings give to their application.

    Attributes:
        mode: `off` reads no bindings, `labelled` applies them to pods with the label of an application, `required` to
            all pods that request a GPU.
        require_namespace: whether a binding gives a card only to the pods of the namespace that it names. Otherwise one
            without a namespace trusts the labels of pods in every namespace.
    """

    mode: BindingsMode = "off"
    require_namespace: bool = False


class AllocationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of requests and policies of placement.

    Attributes:
        resources: the resource names.
        default_count: cards of a container that requests only memory or cores.
        default_memory_mib: memory per card if a container requests none; 0 means the whole card.
        default_cores_percent: compute per card if a container requests none and does not request a whole card.
        memory_factor: MiB per unit of the memory resource, in requests and quotas; 1024 lets users write GiB.
        memory_bursting: whether the limits of a container's memory may be above its request (docs/bursting.md).
        core_policy: when HAMi-core limits cores: `default` while the card is shared, `force` always, `disable` never
            (for `disable`, the admission policy `tranche-creation` must allow that value as well).
        node_policy: `binpack` prefers full nodes, `spread` empty ones; a pod's annotation takes precedence.
        card_policy: the same for the cards of a node, by HAMi's names; HAMi's default is `spread` (docs/packing.md).
        weights: of slots, cores and memory in a card's score.
        topology: how connections between cards are evaluated.
        bindings: which pods get only the cards of their application.
        models: the FP16 TFLOPs of whole cards by the model that NVML reports, beside those that `allocation.models`
            knows, and in their place.
        default_resreq: what a pod requires that names a GpuQueue by its label and no resources, where the queue does
            not say it (`allocation.fairness.resreq`).
        most_pods_per_node: the most pods with cards on a node, whatever is free there; null is unlimited.
        isolation_policy: `dynamic` lets pods share a card only with pods of the same isolation (docs/sharing.md).
        resource_claims: what becomes, in loop mode, of GPU pods with `resourceClaims` of other drivers: `hold` keeps
            them waiting, `hand-over` leaves them to a kube-scheduler next to the scheduler (docs/resource-claims.md).
    """

    resources: ResourceNames = ResourceNames()
    default_count: int = 1
    default_memory_mib: int = 0
    default_cores_percent: int = 0
    memory_factor: int = 1
    memory_bursting: bool = False
    core_policy: CorePolicy = "default"
    node_policy: NodePolicy = "binpack"
    card_policy: CardPolicy = "binpack"
    weights: Weights = Weights()
    topology: TopologySettings = TopologySettings()
    bindings: BindingSettings = BindingSettings()
    models: Mapping[str, Annotated[int, msgspec.Meta(ge=0, le=MOST_TFLOPS)]] = {}
    default_resreq: str = "cpu=1,mem=1g,gpu=0"
    most_pods_per_node: Annotated[int, msgspec.Meta(ge=1)] | None = None
    isolation_policy: IsolationPolicy = "static"
    resource_claims: ResourceClaimsPolicy = "hold"

    @property
    def sharing(self) -> SharingRules:
        """How pods share nodes and cards."""
        return SharingRules(self.most_pods_per_node, self.isolation_policy == "dynamic")

    @property
    def hands_over(self) -> bool:
        """Whether GPU pods with `resourceClaims` are handed over to kube-scheduler."""
        return self.resource_claims == "hand-over"

    def __post_init__(self) -> None:
        """Reject values from which no request can be derived; msgspec adds the section to the error."""
        try:
            Requirement.parse(self.default_resreq)
        except AllocationError as error:
            raise ValueError(f"default_resreq: {error}") from None
        if self.memory_factor < 1 or self.default_memory_mib % self.memory_factor:
            raise ValueError(
                f"memory_factor is {self.memory_factor} and default_memory_mib {self.default_memory_mib}:"
                " the factor must be 1 or more, and the default a multiple of it"
            )
