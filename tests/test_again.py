from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import again
from tests.support.again import MOST, TIMES, failed, try_again

if TYPE_CHECKING:
    from pathlib import Path


def run(*tests: str, status: int = 1) -> dict[str, Any]:
    """Return a run in which these tests failed, each in two phases."""
    good = {"test": "a.py::ok", "phase": "call", "seconds": 0.1}
    bad = [{"test": test, "phase": phase, "failed": True} for test in tests for phase in ("call", "teardown")]
    return {"exit": status, "phases": [good, *bad]}


def test_tests_that_failed_are_found_once() -> None:
    """Whatever their phase was."""
    assert failed(run("a.py::x", "b.py::y")) == ["a.py::x", "b.py::y"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (run(status=0), "exit status 0"),
        (run("a.py::x", status=2), "exit status 2"),
        (run(), "outside its tests"),
        (run(*(f"a.py::t{number}" for number in range(MOST + 1))), f"{MOST + 1} tests failed"),
    ],
)
def test_a_run_that_says_too_little_is_not_tried_again(content: dict[str, Any], message: str) -> None:
    """It was interrupted, as when a process of it died, or more failed than chance explains."""
    with pytest.raises(ValueError, match=message):
        failed(content)


def test_each_test_has_to_pass_every_time() -> None:
    """A test that fails in its last try fails the run; one that passes each time is named."""
    lines: list[str] = []
    tried: list[str] = []

    def passes(test: str) -> bool:
        tried.append(test)
        return tried.count("y") < TIMES

    assert not try_again(["x", "y"], passes=passes, report=lines.append)
    assert (tried, lines) == (["x"] * TIMES + ["y"] * TIMES, [f"y failed again, in try {TIMES} of {TIMES}"])
    lines.clear()
    assert try_again(["x"], passes=lambda _: True, report=lines.append)
    assert [line for line in lines if line.startswith("unstable: x ")]


def test_command_tries_what_the_last_run_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the failure of a real run, through the file, to a try that passes; without a file it says what to do."""
    monkeypatch.setattr(again, "FILE", tmp_path / "durations.json")
    assert again.main() == 1
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.support.durations import Durations\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Durations(Path('durations.json')))\n"
    )
    (tmp_path / "test_once.py").write_text(
        "from pathlib import Path\n\n"
        "def test_once():\n    before = Path('ran').exists()\n    Path('ran').touch()\n    assert before\n"
    )
    root = again.FILE.parents[0]
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=root, env=environment, check=False, capture_output=True, timeout=60)
    assert done.returncode == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    monkeypatch.setattr(again, "TIMES", 1)
    assert again.main() == 0
