"""The order of the faults."""

from __future__ import annotations

from itertools import islice
from random import Random

from chaos.catalogue import FAULTS, turns


def first(count: int, *, seed: int) -> list[tuple[str, float, float]]:
    """Return the first turns of a seed."""
    drawn = islice(turns(Random(seed)), count)  # noqa: S311 -- not a secret
    return [(turn.fault.name, turn.hold_seconds, turn.pause_seconds) for turn in drawn]


def test_same_seed_draws_same_faults() -> None:
    """Kind, duration and pause are reproducible."""
    assert first(100, seed=7) == first(100, seed=7)
    assert first(100, seed=7) != first(100, seed=8)


def test_no_fault_repeats_before_all_others_were_injected() -> None:
    """A run that is long enough injects every fault."""
    names = [name for name, _, _ in first(2 * len(FAULTS), seed=3)]
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert set(names[: len(FAULTS)]) == set(names[len(FAULTS) :]) == {fault.name for fault in FAULTS}


def test_six_minutes_are_enough_for_every_fault() -> None:
    """This holds for any seed and includes the time that a fault itself takes: 5 s on average."""
    for seed in range(50):
        assert sum(hold + pause + 5 for _, hold, pause in first(len(FAULTS), seed=seed)) < 6 * 60
