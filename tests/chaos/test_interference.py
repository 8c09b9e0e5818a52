"""The rules of a proxy: each disturbs its share of requests and leaves all others alone."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from chaos.interference import Interference, Stage, Treatment

MANY = 2_000


@pytest.fixture
def interference() -> Interference:
    """Rules that are all off."""
    return Interference(Random(1))  # noqa: S311 -- not a secret


def treatments(interference: Interference, *, is_binding: bool) -> Counter[Treatment]:
    """Return the treatments of many requests, counted."""
    return Counter(interference.treatment(is_binding=is_binding) for _ in range(MANY))


def test_everything_passes_initially_and_after_heal(interference: Interference) -> None:
    """`heal` switches every rule off."""
    assert treatments(interference, is_binding=True) == {Treatment.PASS: MANY}
    interference.cut, interference.busy, interference.delay_seconds = True, 1.0, 2.0
    interference.lost_bindings = interference.late_bindings = 1.0
    interference.heal()
    assert treatments(interference, is_binding=True) == {Treatment.PASS: MANY}
    assert interference.delay_seconds == 0.0


@pytest.mark.parametrize(
    ("rule", "treatment"),
    [
        ("lost_bindings", Treatment.LOSE),
        ("truncated_bindings", Treatment.TRUNCATE),
        ("cut_bindings", Treatment.CUT),
        ("late_bindings", Treatment.LATE),
    ],
)
def test_binding_rules_leave_other_requests_alone(interference: Interference, rule: str, treatment: Treatment) -> None:
    """They disturb the configured share of Bindings."""
    setattr(interference, rule, 0.3)
    assert treatments(interference, is_binding=False) == {Treatment.PASS: MANY}
    found = treatments(interference, is_binding=True)
    assert set(found) == {Treatment.PASS, treatment}
    assert 0.25 * MANY < found[treatment] < 0.35 * MANY


def test_429_storm_affects_every_kind_of_request(interference: Interference) -> None:
    """Bindings and other requests are rejected alike."""
    interference.busy = 0.8
    for is_binding in (True, False):
        assert 0.75 * MANY < treatments(interference, is_binding=is_binding)[Treatment.BUSY] < 0.85 * MANY


def test_callback_runs_once_and_at_its_stage(interference: Interference) -> None:
    """A Binding at another stage, and later Bindings, do not trigger it."""
    caught: list[str] = []
    interference.call_at(Stage.RESPONSE, lambda: caught.append("now"))
    interference.reached(Stage.REQUEST)
    assert caught == []
    interference.reached(Stage.RESPONSE)
    interference.reached(Stage.RESPONSE)
    assert caught == ["now"]


def test_callback_can_skip_bindings(interference: Interference) -> None:
    """So a process can be killed in the middle of its work, not only at its first Binding."""
    caught: list[str] = []
    interference.call_at(Stage.REQUEST, lambda: caught.append("now"), skip=2)
    for expected in ([], [], ["now"], ["now"]):
        interference.reached(Stage.REQUEST)
        assert caught == expected
