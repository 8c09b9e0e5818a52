"""Growth is measured from the end of the warm-up to the end of the run."""

from __future__ import annotations

import pytest

from chaos.memory import EVERY_SECONDS, Growth, Sample, growths
from chaos.soak import Soaked
from chaos.violation import Kind, Violation

HALF_AN_HOUR = 1800.0


def samples(process: str, *mib: tuple[float, float]) -> list[Sample]:
    """Return samples of half an hour; each pair is a second and the MiB from then on."""
    times = [number * EVERY_SECONDS for number in range(int(HALF_AN_HOUR / EVERY_SECONDS))]
    return [Sample(at, process, [size for begin, size in mib if begin <= at][-1]) for at in times]


def test_growth_before_minute_ten_is_ignored() -> None:
    """The process is warming up."""
    (found,) = growths(samples("p", (0, 50.0), (590, 80.0)), seconds=HALF_AN_HOUR)
    assert (found.percent, found.most) == (0.0, 80.0)


def test_growth_after_warm_up_counts() -> None:
    """It is a percentage of the memory after the warm-up; a peak in between is shown but does not count."""
    (found,) = growths(samples("p", (0, 100.0), (800, 200.0), (810, 100.0), (1600, 106.0)), seconds=HALF_AN_HOUR)
    assert found == Growth("p", 100.0, 106.0, 200.0)
    assert found.percent == pytest.approx(6.0)


def test_each_process_is_judged_separately() -> None:
    """A process that shrinks does not compensate for one that grows."""
    found = growths(
        [*samples("a", (0, 10.0), (700, 5.0)), *samples("b", (0, 10.0), (1000, 15.0))], seconds=HALF_AN_HOUR
    )
    assert [each.process for each in found if each.percent > 0] == ["b"]


def test_growth_or_violation_fails_the_soak() -> None:
    """Growth of five percent fails it, and so does a single violation."""
    calm, grown = Growth("a", 100.0, 104.9, 110.0), Growth("b", 100.0, 105.0, 110.0)
    assert Soaked(30, 1, [calm], []).is_well
    assert not Soaked(30, 1, [calm, grown], []).is_well
    assert not Soaked(30, 1, [calm], [Violation(Kind.WAITS, "p", "for long")]).is_well
    assert "+5.00 %" in Soaked(30, 1, [grown], []).table()
