"""What a proxy does to requests: as often as it was told, and nothing to others."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from chaos.interference import Fate, Interference, Stage

MANY = 2_000


@pytest.fixture
def interference() -> Interference:
    """Nothing is done yet."""
    return Interference(Random(1))  # noqa: S311 -- no secret


def fates(interference: Interference, *, is_binding: bool) -> Counter[Fate]:
    """Answer what becomes of many requests."""
    return Counter(interference.fate(is_binding=is_binding) for _ in range(MANY))


def test_everything_passes_at_first_and_once_healed(interference: Interference) -> None:
    """Healing undoes every rule."""
    assert fates(interference, is_binding=True) == {Fate.PASS: MANY}
    interference.cut, interference.busy, interference.delay_seconds = True, 1.0, 2.0
    interference.lost_bindings = interference.late_bindings = 1.0
    interference.heal()
    assert fates(interference, is_binding=True) == {Fate.PASS: MANY}
    assert interference.delay_seconds == 0.0


@pytest.mark.parametrize(
    ("rule", "fate"),
    [
        ("lost_bindings", Fate.LOSE),
        ("truncated_bindings", Fate.TRUNCATE),
        ("cut_bindings", Fate.CUT),
        ("late_bindings", Fate.LATE),
    ],
)
def test_rules_of_bindings_leave_other_requests_alone(interference: Interference, rule: str, fate: Fate) -> None:
    """And meet the share of Bindings that they were told to."""
    setattr(interference, rule, 0.3)
    assert fates(interference, is_binding=False) == {Fate.PASS: MANY}
    found = fates(interference, is_binding=True)
    assert set(found) == {Fate.PASS, fate}
    assert 0.25 * MANY < found[fate] < 0.35 * MANY


def test_a_storm_meets_every_kind_of_request(interference: Interference) -> None:
    """Bindings and others alike."""
    interference.busy = 0.8
    for is_binding in (True, False):
        assert 0.75 * MANY < fates(interference, is_binding=is_binding)[Fate.BUSY] < 0.85 * MANY


def test_an_ambush_is_sprung_once_and_where_it_was_laid(interference: Interference) -> None:
    """The next Binding at another stage, and the one after it, go unharmed."""
    caught: list[str] = []
    interference.lie_in_wait(Stage.ANSWERED, lambda: caught.append("now"))
    interference.passes(Stage.ASKED)
    assert caught == []
    interference.passes(Stage.ANSWERED)
    interference.passes(Stage.ANSWERED)
    assert caught == ["now"]


def test_an_ambush_may_let_some_pass(interference: Interference) -> None:
    """So that a process is killed in the middle of its work, not at its first step."""
    caught: list[str] = []
    interference.lie_in_wait(Stage.ASKED, lambda: caught.append("now"), unharmed=2)
    for expected in ([], [], ["now"], ["now"]):
        interference.passes(Stage.ASKED)
        assert caught == expected
