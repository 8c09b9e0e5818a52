"""The pauses between attempts: doubling, bounded, random, and short again after a success."""

from __future__ import annotations

import pytest

from cluster.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    """The last pause repeats for as long as attempts fail."""
    backoff = Backoff(first=0.2, longest=1.0)
    assert [backoff.next() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_reset_makes_pauses_short_again() -> None:
    """After `reset` the first pause is next."""
    backoff = Backoff(first=0.2, longest=1.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 0.2


def test_first_pause_is_never_longer_than_the_longest() -> None:
    """A setting may make the longest pause shorter than the usual first one."""
    assert Backoff(first=0.2, longest=0.1).next() == 0.1


def test_pauses_are_multiplied_by_a_random_factor() -> None:
    """The factor does not carry over to the next pause, and may exceed the longest one."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    backoff = Backoff(first=1.0, longest=4.0, jitter=(0.5, 1.5), uniform=uniform)
    assert [backoff.next() for _ in range(3)] == [1.5, 3.0, 6.0]
    assert drawn == [(0.5, 1.5)] * 3


@pytest.mark.parametrize(("requested", "expected"), [(0.5, 0.5), (3.0, 3.0), (60.0, 4.0)])
def test_pause_that_the_server_requests_replaces_the_computed_one(requested: float, expected: float) -> None:
    """It is bounded by the longest pause, and the next pauses double as usual."""
    backoff = Backoff(first=1.0, longest=4.0)
    assert backoff.next(requested=requested) == expected
    assert backoff.next() == 2.0
