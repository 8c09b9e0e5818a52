"""How much of a limit is used is exact, and what is shown is never more than what is left."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.quota_spec import TotalQuota
from allocation.settings import AllocationSettings
from scheduler.fairness import quota_use
from scheduler.fairness.quota_use import LimitUse
from scheduler.fairness.use import Use

CORES, MEMORY, CARDS = "nvidia.com/gpucores", "nvidia.com/gpumem", "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("held", "percent", "nearly_full"),
    [
        (0, "100.00", False),
        (9_499, "5.01", False),
        (9_500, "5.00", False),
        (9_501, "4.99", True),
        (10_000, "0.00", True),
        (10_001, "0.00", True),
    ],
)
def test_less_than_5_percent_is_too_little_at_a_threshold_of_95(held: int, percent: str, *, nearly_full: bool) -> None:
    """Exactly 5 percent is enough."""
    use = LimitUse(MEMORY, limit=10_000, held=held)
    assert (use.available_percent, use.is_nearly_full(95)) == (percent, nearly_full)


def test_what_is_left_is_rounded_down() -> None:
    """A hundred-thousandth below 5 percent does not look like 5.00, and almost nothing is shown as nothing."""
    assert LimitUse(MEMORY, limit=100_000, held=95_001).available_percent == "4.99"
    assert LimitUse(MEMORY, limit=100_000, held=95_001).is_nearly_full(95)
    assert LimitUse(MEMORY, limit=10**9, held=10**9 - 1).available_percent == "0.00"
    assert LimitUse(MEMORY, limit=10**9, held=1).available_percent == "99.99"


def test_the_unit_of_a_container_is_rounded_up_and_the_alert_is_not() -> None:
    """47.5 of 50 percent of a card leave exactly 5 percent, although 48 are shown as used."""
    use = LimitUse(CORES, limit=50, held=475, unit=10)
    assert (use.used, use.available_percent, use.is_nearly_full(95)) == (48, "5.00", False)


@pytest.mark.parametrize(
    ("held", "percent", "ratio", "nearly_full"), [(0, "100.00", 1.0, False), (1, "0.00", -math.inf, True)]
)
def test_a_limit_of_0_is_full_only_if_somebody_exceeds_it(
    held: int, percent: str, ratio: float, *, nearly_full: bool
) -> None:
    """Of nothing nothing is missing; a limit of 0 that comes after the pods is exceeded without end."""
    use = LimitUse(MEMORY, limit=0, held=held)
    assert (use.available_percent, use.available_ratio, use.is_nearly_full(95)) == (percent, ratio, nearly_full)
    assert use.used_part == (math.inf if held else 0)


@pytest.mark.parametrize(("threshold", "held"), [(0, 1), (50, 51), (100, 101)])
def test_the_threshold_may_be_any_percentage(threshold: int, held: int) -> None:
    """At 0 any use alerts, at 100 only more than the limit, which may have been lowered under running pods."""
    assert LimitUse(CARDS, limit=100, held=held).is_nearly_full(threshold)
    assert not LimitUse(CARDS, limit=100, held=held - 1).is_nearly_full(threshold)


def test_only_limited_resources_of_cards_and_pods_count() -> None:
    """By the units of a container: memory in multiples of the factor, compute in percent."""
    total = TotalQuota({MEMORY: 100, CARDS: 0, "cpu": 1, "example.com/gpu": 5}, max_pods=3)
    use = Use(memory_mib=81, cores=500, cards=2, pods=2)
    uses = quota_use.of_total(total, use, AllocationSettings(memory_factor=4))
    assert [(each.resource, each.used, each.limit) for each in uses] == [
        (CARDS, 2, 0),
        (MEMORY, 21, 100),
        ("pods", 2, 3),
    ]
    assert [each.resource for each in quota_use.fullest_first(uses)] == [CARDS, "pods", MEMORY]
    assert quota_use.of_total(TotalQuota(), use, AllocationSettings()) == ()


def test_of_equally_full_limits_the_name_decides() -> None:
    """So the status does not change from one moment to the next."""
    uses = tuple(LimitUse(name, limit=limit, held=limit // 2) for name, limit in (("b", 2), ("a", 4), ("c", 8)))
    assert [each.resource for each in quota_use.fullest_first(uses)] == ["a", "b", "c"]


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([1, 4, 10]), st.integers(0, 100))
def test_the_shown_percentage_is_at_most_a_hundredth_below_the_exact_one(
    limit: int, held: int, unit: int, threshold: int
) -> None:
    """And a percentage that alerts is never shown as enough."""
    use = LimitUse(MEMORY, limit=limit, held=held, unit=unit)
    shown = Fraction(use.available_percent)
    if limit:
        exact = max(Fraction(0), 100 - Fraction(100 * held, limit * unit))
        assert shown <= exact < shown + Fraction(1, 100)
        assert use.is_nearly_full(threshold) == (100 * Fraction(limit * unit - held, limit * unit) < 100 - threshold)
    if use.is_nearly_full(threshold) and threshold < 100:
        assert shown < 100 - threshold
    assert (use.used - 1) * unit < held <= use.used * unit
