"""What an administrator may decide about requests and placement; the same for every process."""

from typing import Literal

import msgspec

NodePolicy = Literal["binpack", "spread"]
CardPolicy = Literal["binpack", "spread", "numa", "mutex", "topology-aware"]
CorePolicy = Literal["default", "force", "disable"]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much slots, cores and memory count in the score of a card."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class ResourceNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resource names a user writes; HAMi's by default (hami.md 1.4)."""

    count: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    memory_percentage: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    priority: str = "nvidia.com/priority"

    def asking(self) -> tuple[str, str, str, str]:
        """Answer every name by which a container asks for a GPU."""
        return (self.count, self.memory, self.memory_percentage, self.cores)

    def managed(self) -> tuple[str, ...]:
        """Answer every name that is ours to read, which no kubelet has to have room for."""
        return (*self.asking(), self.priority)


class AllocationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of a request and policies of placement.

    Attributes:
        resources: the resource names.
        default_count: cards of a container that names memory or cores only.
        default_memory_mib: memory per card where none is asked; 0 means the whole card.
        default_cores_percent: compute per card where none is asked and the card is not asked whole.
        memory_factor: MiB per unit of the memory resource, in requests and quotas alike; 1024 lets users write GiB.
        core_policy: when HAMi-core limits cores: `default` while the card is shared, `force` always, `disable` never
            (the admission policy `tranche-creation` has to be told of that last word, too).
        node_policy: `binpack` fills nodes, `spread` empties them; a pod's annotation wins.
        card_policy: the same for the cards of a node, by HAMi's words.
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
        """Refuse what no request could be derived from; msgspec names the section."""
        if self.memory_factor < 1 or self.default_memory_mib % self.memory_factor:
            raise ValueError(
                f"memory_factor is {self.memory_factor} and default_memory_mib {self.default_memory_mib}:"
                " the factor must be 1 or more, and the default a multiple of it"
            )
