"""The settings of requests and placement, which are the same for every process."""

from typing import Literal

import msgspec

NodePolicy = Literal["binpack", "spread"]
CardPolicy = Literal["binpack", "spread", "numa", "mutex", "topology-aware"]
CorePolicy = Literal["default", "force", "disable"]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of slots, cores and memory in the score of a card."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class ResourceNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resource names that users write; HAMi's by default (hami.md 1.4)."""

    count: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    memory_percentage: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    priority: str = "nvidia.com/priority"

    def gpu_resources(self) -> tuple[str, str, str, str]:
        """Return the names by which a container requests a GPU."""
        return (self.count, self.memory, self.memory_percentage, self.cores)

    def managed(self) -> tuple[str, ...]:
        """Return every name that tranche manages, so that a kubelet need not have capacity for it."""
        return (*self.gpu_resources(), self.priority)


class AllocationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of requests and policies of placement.

    Attributes:
        resources: the resource names.
        default_count: cards of a container that requests only memory or cores.
        default_memory_mib: memory per card if a container requests none; 0 means the whole card.
        default_cores_percent: compute per card if a container requests none and does not request a whole card.
        memory_factor: MiB per unit of the memory resource, in requests and quotas; 1024 lets users write GiB.
        core_policy: when HAMi-core limits cores: `default` while the card is shared, `force` always, `disable` never
            (for `disable`, the admission policy `tranche-creation` must allow that value as well).
        node_policy: `binpack` prefers full nodes, `spread` empty ones; a pod's annotation takes precedence.
        card_policy: the same for the cards of a node, by HAMi's names.
        weights: of slots, cores and memory in a card's score.
    """

    resources: ResourceNames = ResourceNames()
    default_count: int = 1
    default_memory_mib: int = 0
    default_cores_percent: int = 0
    memory_factor: int = 1
    core_policy: CorePolicy = "default"
    node_policy: NodePolicy = "binpack"
    card_policy: CardPolicy = "spread"
    weights: Weights = Weights()

    def __post_init__(self) -> None:
        """Reject values from which no request can be derived; msgspec adds the section to the error."""
        if self.memory_factor < 1 or self.default_memory_mib % self.memory_factor:
            raise ValueError(
                f"memory_factor is {self.memory_factor} and default_memory_mib {self.default_memory_mib}:"
                " the factor must be 1 or more, and the default a multiple of it"
            )
