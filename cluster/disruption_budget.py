"""The PodDisruptionBudget object."""

import msgspec

from allocation.label_selector import LabelSelector
from cluster.metadata import ObjectMeta


class BudgetMeta(ObjectMeta, rename="camel"):
    """The metadata of a budget, with the generation of its spec."""

    generation: int = 0


class BudgetSpec(msgspec.Struct, rename="camel"):
    """Which pods of its namespace a budget is for, and how many of them it requires."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    @property
    def requires_all(self) -> bool:
        """Whether it requires all of its pods, however many there are."""
        return (
            self.max_unavailable == 0 or _percent(self.max_unavailable) == "" or _percent(self.min_available) == "100"
        )


class BudgetStatus(msgspec.Struct, rename="camel"):
    """How many of the pods may be evicted now, and for which generation of the spec that was counted.

    Attributes:
        disruptions_allowed: how many.
        desired_healthy: how many pods have to be healthy.
        expected_pods: how many pods there are, or their controllers create.
        observed_generation: the generation of the spec.
    """

    disruptions_allowed: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(msgspec.Struct):
    """A budget of disruptions, which the API server enforces for Evictions.

    Attributes:
        metadata: its metadata.
        spec: its selector; empty if that exceeds a limit, so that nothing of it is kept.
        status: what it allows.
        is_oversized: whether that is so.
        requires_all: whether it requires all of its pods, however many there are.
    """

    metadata: BudgetMeta
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)
    is_oversized: bool = False
    requires_all: bool = False

    def __post_init__(self) -> None:
        """Drop a selector that exceeds a limit, and numbers, which may be long texts."""
        self.is_oversized = self.spec.selector is not None and self.spec.selector.is_oversized
        self.requires_all = self.requires_all or self.spec.requires_all
        self.spec = BudgetSpec() if self.is_oversized else BudgetSpec(self.spec.selector)

    @property
    def allowed(self) -> int:
        """The Evictions that the API server permits now: none while the status is of an earlier spec."""
        if self.status.observed_generation < self.metadata.generation:
            return 0
        return max(0, self.status.disruptions_allowed)

    @property
    def is_rigid(self) -> bool:
        """Whether it is a rigid budget: it requires all pods that there are, so it never permits an Eviction."""
        if self.requires_all:
            return True
        is_counted = self.status.observed_generation >= self.metadata.generation
        return is_counted and 0 < self.status.expected_pods <= self.status.desired_healthy


def _percent(value: int | str | None) -> str | None:
    """Return a percentage without leading zeros, so that 0 is empty; None if the value is not a percentage."""
    return value.removesuffix("%").lstrip("0") if isinstance(value, str) else None
