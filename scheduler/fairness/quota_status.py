"""The status of a GpuQuota: a view for people; nothing decides by it."""

from collections.abc import Sequence
from typing import Final, Literal

from allocation import ineffective
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from cluster.conditions import VALID, transition_time, validity
from cluster.gpu_quota import GpuQuotaStatus, QuotaCondition
from scheduler.fairness import quota_use
from scheduler.fairness.quota_use import PODS, LimitUse
from scheduler.fairness.use import Use

_READY: Final = "Ready"


def desired(
    spec: QuotaSpec, use: Use, *, generation: int, before: GpuQuotaStatus, settings: AllocationSettings, now: str
) -> GpuQuotaStatus:
    """Return the status of a quota at the time `now`; it equals `before`, the last status, if nothing changed."""
    uses = quota_use.of_total(spec.total, use, settings)
    threshold = spec.total.alert_threshold_percent
    return GpuQuotaStatus(
        observed_generation=generation,
        used={each.resource: each.used for each in uses if each.resource != PODS},
        pods=use.pods,
        available_percent={each.resource: each.available_percent for each in uses},
        fullest=fullest(uses),
        conditions=(
            _ready(uses, threshold, before=before.conditions, now=now),
            _valid(spec, settings, before=before.conditions, now=now),
        ),
    )


def fullest(uses: tuple[LimitUse, ...]) -> str:
    """Return the resource of which the smallest part is left; empty without limits."""
    return next((each.resource for each in quota_use.fullest_first(uses)), "")


def is_nearly_full(status: GpuQuotaStatus) -> bool:
    """Whether a status says that too little is left of a limit."""
    return any((each.type, each.status) == (_READY, "False") for each in status.conditions)


def _ready(uses: tuple[LimitUse, ...], threshold: int, *, before: Sequence[QuotaCondition], now: str) -> QuotaCondition:
    nearly_full = [each for each in quota_use.fullest_first(uses) if each.is_nearly_full(threshold)]
    status: Literal["True", "False"] = "False" if nearly_full else "True"
    return QuotaCondition(
        type=_READY,
        status=status,
        reason="AlertThresholdReached" if nearly_full else "CapacitySufficient",
        message=_message(uses, nearly_full, threshold),
        last_transition_time=transition_time(_READY, status, before=before, now=now),
    )


def _valid(
    spec: QuotaSpec, settings: AllocationSettings, *, before: Sequence[QuotaCondition], now: str
) -> QuotaCondition:
    status, reason, message = validity(ineffective.of_quota(spec, settings))
    return QuotaCondition(VALID, status, reason, message, transition_time(VALID, status, before=before, now=now))


def _message(uses: tuple[LimitUse, ...], nearly_full: Sequence[LimitUse], threshold: int) -> str:
    left = 100 - threshold
    if nearly_full:
        parts = (
            f"{each.resource} ({each.available_percent}%: {each.used} of {each.limit} used)" for each in nearly_full
        )
        return f"less than {left}% is left of {', '.join(parts)}"
    return f"at least {left}% of each limit is left" if uses else "spec.total sets no limits"
