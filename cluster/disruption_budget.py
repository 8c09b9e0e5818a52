"""The PodDisruptionBudget object."""

import msgspec

from allocation.label_selector import LabelSelector
from cluster.metadata import ObjectMeta


class BudgetMeta(ObjectMeta, rename="camel"):
    """The metadata of a budget, with the generation of its spec."""

    generation: int = 0


class BudgetSpec(msgspec.Struct):
    """Which pods of its namespace a budget is for."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, rename="camel"):
    """How many of the pods may be evicted now, and for which generation of the spec that was counted."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(msgspec.Struct):
    """A budget of disruptions, which the API server enforces for Evictions.

    Attributes:
        metadata: its metadata.
        spec: its pods; empty if the selector exceeds a limit, so that nothing of it is kept.
        status: what it allows.
        is_oversized: whether that is so.
    """

    metadata: BudgetMeta
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)
    is_oversized: bool = False

    def __post_init__(self) -> None:
        """Drop a selector that exceeds a limit."""
        self.is_oversized = self.spec.selector is not None and self.spec.selector.is_oversized
        if self.is_oversized:
            self.spec = BudgetSpec()

    @property
    def allowed(self) -> int:
        """The Evictions that the API server permits now: none while the status is of an earlier spec."""
        if self.status.observed_generation < self.metadata.generation:
            return 0
        return max(0, self.status.disruptions_allowed)
