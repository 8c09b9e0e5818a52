"""The command: flags, output and exit codes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from chaos import __main__ as command
from chaos.catalogue import FAULTS
from chaos.settings import FAST_TAKEOVER, NORMAL, Settings
from chaos.summary import Summary
from chaos.violation import Kind, Violation
from lab.errors import LabError

ROOT = Path(__file__).parents[2]


def summary(*violations: Violation, missing: tuple[str, ...] = ()) -> Summary:
    """Return the result of a run."""
    return Summary(
        seed=7,
        seconds=60.0,
        faults=Counter({"node vanished": 2, "429 storm": 1}),
        missing=[*missing],
        traffic=Counter({"429": 12}),
        created=100,
        deleted=80,
        placed=99,
        asked_again=3,
        gaps=0,
        slowest_seconds=1.25,
        violations=list(violations),
    )


def test_table_counts_faults_by_kind_and_violations() -> None:
    """The table names the seed, which repeats the run."""
    table = summary(Violation(Kind.WAITS, "p", "for long")).table()
    rows = dict(re.findall(r"^\| (.+?) +\| +(\S+) +\|$", table, re.MULTILINE))
    assert "seed 7" in table
    assert (rows["fault: node vanished"], rows["faults in total, of 2 kinds"], rows["violations"]) == ("2", "3", "1")


def test_each_run_appends_a_line_of_json(tmp_path: Path) -> None:
    """Earlier runs are kept."""
    for _ in range(2):
        summary().write(tmp_path / "new" / "chaos.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "new" / "chaos.jsonl").read_text().splitlines()]
    assert [line["placed"] for line in lines] == [99, 99]


@pytest.mark.parametrize(("violations", "code"), [((), 0), ((Violation(Kind.OVER_CAPACITY, "GPU-a", "full"),), 1)])
def test_exit_code_reports_violations(
    violations: tuple[Violation, ...],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each violation is printed on a line of its own."""

    async def run(config: Settings, *, report: object) -> Summary:
        assert config == Settings(minutes=2, seed=7, kills=5, lost_bindings=3, results=tmp_path)
        return summary(*violations)

    monkeypatch.setattr(command, "chaos", run)
    flags = ["--minutes", "2", "--seed", "7", "--kills", "5", "--lost-bindings", "3", "--results", str(tmp_path)]
    assert command.main(flags) == code
    shown = capsys.readouterr().out
    assert f"violations = {len(violations)};" in shown
    assert all(f"VIOLATION {each}" in shown for each in violations)


def test_fault_that_was_not_injected_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that left something out has failed, and says what."""

    async def run(config: Settings, *, report: object) -> Summary:
        return summary(missing=("clock skew",))

    monkeypatch.setattr(command, "chaos", run)
    assert command.main(["--results", str(tmp_path)]) == 1
    assert "NOT INJECTED clock skew: it found nothing to disturb" in capsys.readouterr().out


def test_cluster_that_does_not_start_is_not_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the error names the remedy."""

    async def run(config: Settings, *, report: object) -> Summary:
        raise LabError("port 1", why="another process listens there", remedy="stop it")

    monkeypatch.setattr(command, "chaos", run)
    assert command.main([]) == 2
    assert "error: port 1: another process listens there; stop it" in capsys.readouterr().err


def test_hunt_uses_short_leases() -> None:
    """Other runs use the normal durations."""
    assert Settings().timing is NORMAL
    assert Settings(kills=1).timing is FAST_TAKEOVER


def test_docs_cover_every_family_of_faults() -> None:
    """docs/operations.md states the promise under each family of faults."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    promises = page.partition("\n## When a part fails\n")[2].partition("\n## ")[0]
    words = {
        "processes": "dies, freezes",
        "network": "responses take 2 s; 429",
        "control_plane": "410",
        "clock": "wall clock is wrong",
        "nodes": "a node vanishes",
    }
    assert {fault.__module__.rpartition(".")[2] for fault in FAULTS} == set(words)
    assert all(word in promises for word in words.values())
