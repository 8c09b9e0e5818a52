from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.durations import Durations, table

if TYPE_CHECKING:
    import pytest

SUITE = """
import time
import pytest

@pytest.fixture(scope="module")
def slow():
    time.sleep(0.2)

def test_one(slow):
    pass

def test_two(slow):
    time.sleep(0.1)
"""
PLUGIN = """
from pathlib import Path
from tests.support.durations import Durations

def pytest_configure(config):
    config.pluginmanager.register(Durations(Path("durations.json")))
"""


def test_a_run_keeps_how_long_each_phase_and_fixture_took(tmp_path: Path) -> None:
    """Also in several processes; the sums are those of the phases."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "--numprocesses=2", "--rootdir=.", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60, env=environment)
    content = json.loads((tmp_path / "durations.json").read_text())
    seconds = {(each["test"].partition("::")[2], each["phase"]): each["seconds"] for each in content["phases"]}
    assert seconds["test_two", "call"] >= 0.1
    assert seconds["test_one", "call"] < 0.1
    assert content["fixtures"]["slow"] >= 0.2
    assert content["processes"] == 2


def test_the_table_has_the_longest_and_the_sums() -> None:
    """Phases are sorted; modules and fixtures are summed."""
    phases = [
        {"test": "a.py::test_x", "phase": "call", "seconds": 1.0},
        {"test": "a.py::test_y[1]", "phase": "setup", "seconds": 3.0},
        {"test": "b.py::test_z", "phase": "call", "seconds": 2.0},
    ]
    text = table({"seconds": 4.0, "processes": 2, "phases": phases, "fixtures": {"lab": 2.5}})
    lines = [line.split() for line in text.splitlines() if line[:1] == " "]
    assert lines == [
        ["3.00", "setup", "a.py::test_y[1]"],
        ["2.00", "call", "b.py::test_z"],
        ["1.00", "call", "a.py::test_x"],
        ["4.00", "a.py"],
        ["2.00", "b.py"],
        ["2.50", "lab"],
    ]


def test_a_worker_writes_no_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Only the process that has the reports of all does."""
    session = type("Session", (), {"config": type("Config", (), {"workerinput": {}, "args": ["tests"]})})
    Durations(tmp_path / "durations.json").pytest_sessionfinish(session, 0)  # type: ignore[arg-type]
    assert not (tmp_path / "durations.json").exists()


def test_a_run_of_single_tests_writes_no_file(tmp_path: Path) -> None:
    """What the whole run took stays known after its failures were tried again."""
    option = type("Option", (), {"collectonly": False})
    session = type(
        "Session", (), {"config": type("Config", (), {"option": option, "args": ["tests/test_a.py::test_b"]})}
    )
    Durations(tmp_path / "durations.json").pytest_sessionfinish(session, 0)  # type: ignore[arg-type]
    assert not (tmp_path / "durations.json").exists()
