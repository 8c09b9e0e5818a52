"""The order of the faults."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import cycle, islice
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, cast

from chaos import catalogue, run
from chaos.catalogue import FAULTS, Turn, once, turns
from chaos.faults.fault import Fault
from chaos.settings import Settings

if TYPE_CHECKING:
    import pytest

    from chaos.load import Load
    from chaos.world import World


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


def test_the_first_round_has_every_fault_once_in_an_order_of_the_seed() -> None:
    """Whatever the time of the run."""
    orders = [[turn.fault for turn in once(Random(seed))] for seed in (1, 1, 2)]  # noqa: S311 -- not a secret
    assert orders[0] == orders[1] != orders[2]
    assert all(Counter(order) == Counter(FAULTS) for order in orders)


class Needed(Fault):
    """Finds something to disturb at the attempt of that number; the attempts are counted."""

    hold_seconds, once_seconds = (0.0, 0.0), 0.0
    number: ClassVar[int]
    attempts: ClassVar[int]

    async def apply(self, world: World, draw: Random) -> None:
        """Disturb, or not."""
        del world, draw
        type(self).attempts += 1
        self.effects += self.attempts >= self.number

    async def heal(self, world: World) -> None:
        """Do nothing."""


async def test_fault_without_effect_is_tried_again_and_counts_only_once_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run names the faults that never disturbed anything, and fails for it."""
    kinds = {
        name: type(name, (Needed,), {"name": name, "number": number, "attempts": 0})
        for name, number in (("at once", 1), ("later", 3), ("never", 99))
    }
    monkeypatch.setattr(catalogue, "FAULTS", tuple(kinds.values()))
    monkeypatch.setattr(catalogue, "once", partial(once, faults=tuple(kinds.values())))
    monkeypatch.setattr(catalogue, "turns", lambda _: cycle([Turn(kinds["at once"], 0.0, 0.0)]))
    faults: Counter[str] = Counter()
    config = Settings(minutes=1e-9)
    world, load = cast("World", None), cast("Load", SimpleNamespace(created=0))
    await run._inject(config, world, load, draw=Random(1), faults=faults, report=print)  # noqa: S311 -- not a secret
    assert faults == {"at once": 1, "later": 1}
    assert {name: kind.attempts for name, kind in kinds.items()} == {"at once": 1, "later": 3, "never": 3}
    assert run.missing(config, faults) == ["never"]
    assert run.missing(Settings(minutes=0), Counter()) == []
