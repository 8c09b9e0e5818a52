"""Growth: from when a process is warm to the end, whatever it did before."""

from __future__ import annotations

import pytest

from chaos.memory import EVERY_SECONDS, Growth, Sample, growths
from chaos.soak import Soaked
from chaos.violation import Kind, Violation

HALF_AN_HOUR = 1800.0


def samples(process: str, *mib: tuple[float, float]) -> list[Sample]:
    """Answer samples of half an hour: from each second on so many MiB."""
    times = [number * EVERY_SECONDS for number in range(int(HALF_AN_HOUR / EVERY_SECONDS))]
    return [Sample(at, process, [size for begin, size in mib if begin <= at][-1]) for at in times]


def test_what_grows_before_minute_ten_is_warming_up() -> None:
    """It says nothing of a leak."""
    (found,) = growths(samples("p", (0, 50.0), (590, 80.0)), seconds=HALF_AN_HOUR)
    assert (found.percent, found.most) == (0.0, 80.0)


def test_what_grows_afterwards_counts() -> None:
    """In percent of what it was when warm; a peak in between is shown and does not count."""
    (found,) = growths(samples("p", (0, 100.0), (800, 200.0), (810, 100.0), (1600, 106.0)), seconds=HALF_AN_HOUR)
    assert found == Growth("p", 100.0, 106.0, 200.0)
    assert found.percent == pytest.approx(6.0)


def test_each_process_is_judged_for_itself() -> None:
    """One that shrinks does not make up for one that grows."""
    found = growths(
        [*samples("a", (0, 10.0), (700, 5.0)), *samples("b", (0, 10.0), (1000, 15.0))], seconds=HALF_AN_HOUR
    )
    assert [each.process for each in found if each.percent > 0] == ["b"]


def test_a_verdict_is_about_growth_and_about_what_was_broken() -> None:
    """Five percent is too much, so is one violation."""
    calm, grown = Growth("a", 100.0, 104.9, 110.0), Growth("b", 100.0, 105.0, 110.0)
    assert Soaked(30, 1, [calm], []).is_well
    assert not Soaked(30, 1, [calm, grown], []).is_well
    assert not Soaked(30, 1, [calm], [Violation(Kind.WAITS, "p", "for long")]).is_well
    assert "+5.00 %" in Soaked(30, 1, [grown], []).table()
