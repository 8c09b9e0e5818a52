"""CI's judgement of decisions: what is slower twice is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import judge

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("attempts", "code", "message"),
    [
        ([1.4], 0, ""),
        ([1.6, 1.4], 0, "a decision: 1.60 of its limit (attempt 1)\n"),
        ([1.6, 1.7], 1, "error: slower than its limit: a decision"),
    ],
)
def test_what_exceeds_its_limit_twice_is_an_error(
    attempts: list[float],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By half; a machine that was busy with something else for a moment is tried again."""
    left = iter(attempts)

    def medians() -> Iterator[tuple[str, float]]:
        yield "a decision", 2 * next(left)

    monkeypatch.setattr(judge, "_medians", medians)
    monkeypatch.setattr(judge, "pace", lambda: 2.0)
    monkeypatch.setattr("sys.argv", ["judge"])
    assert judge.main() == code
    assert message in capsys.readouterr().err
    assert not list(left)


def test_decisions_and_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with a limit, each with its own name."""
    monkeypatch.setattr(judge.steps, "NODES", 100)
    monkeypatch.setitem(judge.decision.TARGETS, 100, {"repeating": (40, 0)})
    monkeypatch.setattr(judge, "_DECISIONS", 5)
    monkeypatch.setattr(judge, "_TIMES", 1)
    measured = dict(judge._medians())
    assert "decision, 100 nodes of 8 cards, repeating" in measured
    assert any(what.startswith("longest step of explanation") for what in measured)
    assert all(part > 0 for part in measured.values())
