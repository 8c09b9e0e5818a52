"""What is typed and what is printed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from chaos import __main__ as command
from chaos.catalogue import FAULTS
from chaos.settings import CAUTIOUS, HASTY, Settings
from chaos.summary import Summary
from chaos.violation import Kind, Violation
from lab.errors import LabError

ROOT = Path(__file__).parents[2]


def summary(*violations: Violation) -> Summary:
    """Answer what came of a run."""
    return Summary(
        seed=7,
        seconds=60.0,
        faults=Counter({"node vanished": 2, "429 storm": 1}),
        traffic=Counter({"429": 12}),
        created=100,
        deleted=80,
        placed=99,
        asked_again=3,
        gaps=0,
        slowest_seconds=1.25,
        violations=list(violations),
    )


def test_the_table_counts_faults_by_kind_and_violations() -> None:
    """With the seed that brings them again."""
    table = summary(Violation(Kind.WAITS, "p", "for long")).table()
    rows = dict(re.findall(r"^\| (.+?) +\| +(\S+) +\|$", table, re.MULTILINE))
    assert "seed 7" in table
    assert (rows["fault: node vanished"], rows["faults in all"], rows["violations"]) == ("2", "3", "1")


def test_each_run_adds_a_line(tmp_path: Path) -> None:
    """Which a program can read."""
    for _ in range(2):
        summary().write(tmp_path / "new" / "chaos.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "new" / "chaos.jsonl").read_text().splitlines()]
    assert [line["placed"] for line in lines] == [99, 99]


@pytest.mark.parametrize(("violations", "code"), [((), 0), ((Violation(Kind.OVER_CAPACITY, "GPU-a", "full"),), 1)])
def test_the_exit_code_says_whether_anything_was_broken(
    violations: tuple[Violation, ...],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And each violation stands on a line of its own."""

    async def run(told: Settings, *, report: object) -> Summary:
        assert told == Settings(minutes=2, seed=7, kills=5, lost_bindings=3, results=tmp_path)
        return summary(*violations)

    monkeypatch.setattr(command, "chaos", run)
    flags = ["--minutes", "2", "--seed", "7", "--kills", "5", "--lost-bindings", "3", "--results", str(tmp_path)]
    assert command.main(flags) == code
    shown = capsys.readouterr().out
    assert f"violations = {len(violations)};" in shown
    assert all(f"VIOLATION {each}" in shown for each in violations)


def test_a_cluster_that_cannot_be_had_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with what to do."""

    async def run(told: Settings, *, report: object) -> Summary:
        raise LabError("port 1", why="another process listens there", remedy="stop it")

    monkeypatch.setattr(command, "chaos", run)
    assert command.main([]) == 2
    assert "error: port 1: another process listens there; stop it" in capsys.readouterr().err


def test_hundreds_of_takeovers_are_hasty() -> None:
    """Others keep the caution of a lab."""
    assert Settings().caution is CAUTIOUS
    assert Settings(kills=1).caution is HASTY


def test_the_page_tells_of_every_family_of_faults() -> None:
    """docs/faults.md says what is promised under each; a fault without a promise is not on it."""
    page = (ROOT / "docs" / "faults.md").read_text()
    words = {
        "processes": "dies, freezes",
        "network": "answers take 2 s; 429",
        "control_plane": "410",
        "clock": "wall clock is wrong",
        "nodes": "a node vanishes",
    }
    assert {fault.__module__.rpartition(".")[2] for fault in FAULTS} == set(words)
    assert all(word in page for word in words.values())
