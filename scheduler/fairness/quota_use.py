"""How much of its limits the pods of a namespace hold, in exact integers."""

import math
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from allocation import quota
from allocation.fairness.quota_spec import TotalQuota
from allocation.quota import Limits
from allocation.settings import AllocationSettings
from scheduler.fairness.use import Use

PODS = "pods"
"""The resource that `total.maxPods` limits."""
_PERCENT = 100


class LimitUse(msgspec.Struct, frozen=True):
    """The use of one limit.

    Attributes:
        resource: the name that users write, such as `nvidia.com/gpumem`; `pods` for the number of pods.
        limit: how much all pods together may hold, in units of the resource.
        held: how much they hold: MiB, millicards, thousandths of TFLOPs, shares or pods. It may be more than the limit,
            which may have been set later.
        unit: how much of `held` a unit of the resource is.
    """

    resource: str
    limit: int
    held: int
    unit: int = 1

    @property
    def used(self) -> int:
        """How much the pods hold, in units of the resource, rounded up."""
        return -(-self.held // self.unit)

    @property
    def used_part(self) -> Fraction | float:
        """The part of the limit that is used; infinite if a limit of 0 is exceeded."""
        if not self._total:
            return math.inf if self.held else 0
        return Fraction(self.held, self._total)

    @property
    def available_ratio(self) -> float:
        """The part of the limit that is left: 1 or less, and negative if more than the limit is used."""
        return float(1 - self.used_part)

    @property
    def available_percent(self) -> str:
        """What is left in percent, with two decimals, rounded down; all of a limit of 0 that is not exceeded."""
        if not self._total:
            return "0.00" if self.held else "100.00"
        whole, hundredths = divmod(max(0, self._left) * _PERCENT * 100 // self._total, 100)
        return f"{whole}.{hundredths:02}"

    def is_nearly_full(self, threshold_percent: int) -> bool:
        """Whether less than 100 minus `threshold_percent` percent is left, or more than the limit is used."""
        return self._left * _PERCENT < (_PERCENT - threshold_percent) * self._total

    @property
    def _total(self) -> int:
        return self.limit * self.unit

    @property
    def _left(self) -> int:
        return self._total - self.held


def of_limits(limits: Limits, use: Use) -> Iterator[LimitUse]:
    """Yield the use of the limits on memory, cores, cards and TFLOPs."""
    for limit, held in zip(limits, (use.memory_mib, use.cores, use.cards, use.tflops), strict=True):
        if limit is not None:
            yield LimitUse(limit.resource, limit.amount, held, limit.unit)


def of_total(total: TotalQuota, use: Use, settings: AllocationSettings) -> tuple[LimitUse, ...]:
    """Return the use of each limit of a GpuQuota, by name; limits on resources that are not of cards have no effect."""
    uses = [
        *of_limits(quota.of_object("GpuQuota", "", total.limits, settings).limits, use.at_limits()),
        *of_limits(quota.of_requests("", total.requests, settings).limits, use),
    ]
    if total.max_pods is not None:
        uses.append(LimitUse(PODS, total.max_pods, use.pods))
    return tuple(sorted(uses, key=lambda each: each.resource))


def fullest_first(uses: tuple[LimitUse, ...]) -> list[LimitUse]:
    """Sort limits by the part that is left, the smallest first; equal ones by name."""
    return sorted(uses, key=lambda each: (-each.used_part, each.resource))
