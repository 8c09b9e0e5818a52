"""The status of a GpuQuota shows how much of each limit is used, and which of them are nearly full."""

from typing import Any

import msgspec
import pytest

from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from cluster.gpu_quota import GpuQuotaStatus, QuotaCondition
from scheduler.fairness import quota_status
from scheduler.fairness.use import Use

THEN, NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
NEW = GpuQuotaStatus()
MEMORY, CORES, CARDS = "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu"


def written(use: Use, *, before: GpuQuotaStatus = NEW, now: str = NOW, **total: Any) -> GpuQuotaStatus:
    """Return the status of a quota with this `spec.total`."""
    spec = msgspec.convert({"total": total}, QuotaSpec)
    return quota_status.desired(spec, use, generation=1, before=before, settings=AllocationSettings(), now=now)


def ready(status: GpuQuotaStatus) -> QuotaCondition:
    """Return the condition of a status."""
    (condition,) = (each for each in status.conditions if each.type == "Ready")
    return condition


def valid(status: GpuQuotaStatus) -> QuotaCondition:
    """Return the condition about the names of resources."""
    (condition,) = (each for each in status.conditions if each.type == "Valid")
    return condition


def test_a_limit_that_limits_nothing_is_reported() -> None:
    """With the name that was probably meant; such a quota is not nearly full."""
    status = written(Use(cards=9), limits={"nvidia.com/gpus": 4, "cpu": 8})
    assert (valid(status).status, valid(status).reason) == ("False", "UnknownResource")
    assert valid(status).message == (
        'spec.total.limits["cpu"] has no effect: use a ResourceQuota of each namespace for cpu;'
        ' spec.total.limits["nvidia.com/gpus"] has no effect: did you mean nvidia.com/gpu?'
    )
    assert not quota_status.is_nearly_full(status)
    assert valid(written(Use(), limits={CARDS: 4})).status == "True"


def test_the_limited_resources_are_shown_with_what_is_used_of_them() -> None:
    """In the units of a container; what no quota limits is left out, but for the number of pods."""
    use = Use(memory_mib=30_000, cores=1_005, cards=3, pods=2)
    status = written(use, limits={MEMORY: 40_000, CORES: 300})
    assert status.used == {MEMORY: 30_000, CORES: 101}
    assert status.available_percent == {MEMORY: "25.00", CORES: "66.50"}
    assert (status.pods, status.fullest, status.observed_generation) == (2, MEMORY, 1)
    limited = written(use, maxPods=2)
    assert (limited.used, limited.available_percent, limited.fullest) == ({}, {"pods": "0.00"}, "pods")


def test_a_quota_without_limits_is_ready() -> None:
    """It may have other parts: what one pod may have."""
    status = written(Use(memory_mib=5, pods=1))
    assert (status.used, status.available_percent, status.fullest, status.pods) == ({}, {}, "", 1)
    condition = ready(status)
    assert (condition.status, condition.reason) == ("True", "CapacitySufficient")
    assert condition.message == "spec.total sets no limits"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (Use(memory_mib=9_501), f"less than 5% is left of {MEMORY} (4.99%: 9501 of 10000 used)"),
        (Use(cards=10), f"less than 5% is left of {CARDS} (0.00%: 10 of 10 used)"),
        (
            Use(memory_mib=9_600, cards=12, pods=4),
            (
                f"less than 5% is left of {CARDS} (0.00%: 12 of 10 used), pods (0.00%: 4 of 4 used),"
                f" {MEMORY} (4.00%: 9600 of 10000 used)"
            ),
        ),
    ],
)
def test_the_message_names_the_resources_of_which_too_little_is_left(use: Use, message: str) -> None:
    """These and no others, the fullest first, each with its own numbers."""
    condition = ready(written(use, limits={MEMORY: 10_000, CARDS: 10, CORES: 100}, maxPods=4))
    assert (condition.status, condition.reason, condition.message) == ("False", "AlertThresholdReached", message)


def test_the_alert_clears_when_enough_is_left_again() -> None:
    """4.99 percent raise it, 5.00 do not."""
    full = written(Use(memory_mib=9_501), limits={MEMORY: 10_000}, now=THEN)
    assert quota_status.is_nearly_full(full)
    cleared = written(Use(memory_mib=9_500), limits={MEMORY: 10_000}, before=full)
    assert not quota_status.is_nearly_full(cleared)
    condition = ready(cleared)
    assert (condition.reason, condition.message) == ("CapacitySufficient", "at least 5% of each limit is left")
    assert condition.last_transition_time == NOW


def test_the_condition_keeps_its_time_until_its_status_changes() -> None:
    """Other numbers, and another resource, do not move it."""
    limits = {MEMORY: 10_000, CARDS: 10}
    first = written(Use(memory_mib=9_600), limits=limits, now=THEN)
    second = written(Use(memory_mib=9_700, cards=10), limits=limits, before=first, now=NOW)
    assert ready(second).message != ready(first).message
    assert ready(second).last_transition_time == THEN
    assert ready(written(Use(), limits=limits, before=second, now=LATER)).last_transition_time == LATER


def test_a_quota_of_which_nothing_changed_has_the_same_status_later() -> None:
    """So neither this leader writes it again, nor the next one, which reads it from the API server."""
    use, limits = Use(memory_mib=9_600, pods=1), {MEMORY: 10_000}
    before = msgspec.convert(msgspec.to_builtins(written(use, limits=limits, now=THEN)), GpuQuotaStatus)
    assert written(use, limits=limits, before=before, now=NOW) == before
