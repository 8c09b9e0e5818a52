"""The report: docs/performance/results.md is rendered from the raw numbers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from benchmarks import machine, pace, plots, report, results
from benchmarks.results import Result, Row, Sample

if TYPE_CHECKING:
    from pathlib import Path

WHAT = "decision, 1,000 nodes of 8 cards, repeating"


def growth(figure: str) -> Result:
    """Return a result with one row."""
    row = Row("growth", WHAT, figure, "a peer", "p50 ≤ 40 µs", passed=False)
    return Result("growth", machine.describe(), [row], [Sample("growth", WHAT, [0.00003, 0.00005, 0.00007])], 1.87)


@pytest.mark.parametrize(("slower", "is_within"), [(1.0, False), (1.6, True)])
def test_limits_in_time_are_longer_in_a_slow_hour(
    monkeypatch: pytest.MonkeyPatch, slower: float, *, is_within: bool
) -> None:
    """The pace is that of the moment."""
    monkeypatch.setattr(pace, "pace", lambda: slower)
    assert pace.within(15.0, 10.0) is is_within


def test_results_round_trip(tmp_path: Path) -> None:
    """Machine, rows and samples are read as they were written."""
    growth("50 µs").write(tmp_path / "growth.jsonl")
    assert Result.read(tmp_path / "growth.jsonl") == growth("50 µs")


def test_the_newest_run_of_each_benchmark_counts(tmp_path: Path) -> None:
    """The date in its name decides, not the order of files."""
    for stamp, figure in (("2026-11-21T150000Z", "new"), ("2026-11-20T230000Z", "old")):
        growth(figure).write(tmp_path / f"growth-{stamp}.jsonl")
    assert [(day, each.rows[0].figure) for day, each in results.newest(tmp_path)] == [("2026-11-21", "new")]


def test_report_writes_table_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table replaces the text between the marks only, and the same results yield the same page."""
    growth("50 µs").write(tmp_path / "raw" / "growth-2026-11-21T150000Z.jsonl")
    page = tmp_path / "page"
    page.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    monkeypatch.setattr("sys.argv", ["report", "--results", str(tmp_path / "raw"), "--page", str(page)])
    assert report.main() == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- results -->\nMeasured on 2026-11-21")
    assert ",\nat 1.9 times the usual time for a piece of work.\n" in text
    assert f"| {WHAT} | 50 µs | a peer | p50 ≤ 40 µs | FAIL |" in text
    assert text.endswith("<!-- end of results -->\nafter\n")
    assert "old" not in text
    first = (tmp_path / "growth.svg").read_bytes()
    assert b"<svg" in first
    assert report.main() == 0
    assert (page.read_text(), (tmp_path / "growth.svg").read_bytes()) == (text, first)


def test_old_figures_say_how_much_the_code_has_changed_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each day has a table of its own; figures of today do not say it."""
    for day, name in (("2026-11-21", "growth"), ("2999-11-21", "decision")):
        growth("50 µs").write(tmp_path / "raw" / f"{name}-{day}T150000Z.jsonl")
    page = tmp_path / "page"
    page.write_text("<!-- results -->\n<!-- end of results -->\n")
    changes = subprocess.CompletedProcess([], 0, "37\n"), subprocess.CompletedProcess([], 0, "0\n")
    monkeypatch.setattr("subprocess.run", Mock(side_effect=changes))
    monkeypatch.setattr("sys.argv", ["report", "--results", str(tmp_path / "raw"), "--page", str(page)])
    assert report.main() == 0
    text = page.read_text()
    assert "Measured on 2026-11-21, 37 changes of the code ago,\non " in text
    assert "Measured on 2999-11-21,\non " in text
    assert text.count("| what | measured |") == 2


def test_page_without_marks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is not overwritten."""
    growth("50 µs").write(tmp_path / "raw" / "growth-2026-11-21T150000Z.jsonl")
    page = tmp_path / "page"
    page.write_text("mine\n")
    monkeypatch.setattr("sys.argv", ["report", "--results", str(tmp_path / "raw"), "--page", str(page)])
    with pytest.raises(SystemExit):
        report.main()
    assert page.read_text() == "mine\n"


def test_bindings_in_flight_are_plotted(tmp_path: Path) -> None:
    """The plot has a line for each client."""
    samples = [
        Sample("in-flight", f"loop, {width} Bindings under way, 10 nodes", [0.0, 0.1, 0.2 / width]) for width in (1, 8)
    ]
    result = Result("in-flight", machine.describe(), [Row("in-flight", "w", "f")], samples)
    (path,) = plots.draw([result], tmp_path)
    assert path.name == "in-flight.svg"
    assert path.read_bytes().count(b"<!-- loop -->") == 1
