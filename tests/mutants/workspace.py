"""A copy of the checkout in which mutmut changes the code and runs the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".lab" / "mutants"
MARKS: Final = " and ".join(
    f"not {mark}" for mark in ("apiserver", "kubelet", "helm", "image", "archive", "promtool", "browser")
)
UNABLE: Final = ("--ignore=tests/cli/test_base_installation.py", "--ignore=tests/agent/test_mps_daemon.py")
"""Tests that cannot run mutants: those of an installation without packages for development, so without mutmut, and
those that run programs in a folder without its settings."""
_STOP_S: Final = 60
_PATIENCE_S: Final = 30
"""How long tests wait for what must happen (tests/support/patience.py): many mutants keep it from happening at all. A
machine that is too slow for this is noticed when the tests run without a mutant."""
_SETTINGS: Final = "pyproject.toml"
_CALLS: Final = "tests_by_mangled_function_name"
_GENERATE: Final = "from mutmut.__main__ import *; copy_src_dir(); copy_also_copy_files(); setup_source_paths()"
_RUN: Final = (
    # The tests have just passed without a mutant, or nothing would be known of their calls.
    "from mutmut.__main__ import _run; from mutmut.workers.isolation import ForkServerRunner;"
    "ForkServerRunner.run_clean_tests = lambda *_, **__: 0"
)


def prepare(folder: Path, *, sources: Sequence[str], tests: Sequence[str], root: Path = ROOT) -> None:
    """Copy what git knows, or would know, and write mutmut's settings.

    Files that are equal stay as they are, with mutmut's results for them if the same files are mutated.

    Args:
        folder: the copy.
        sources: files to mutate, from the root.
        tests: files and folders of tests that may kill the mutants.
        root: the checkout.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()}
    for name in names - {_SETTINGS}:
        if _copy(root / name, folder / name):
            (folder / "mutants" / name).unlink(missing_ok=True)
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        inside = file.relative_to(folder)
        if inside.parts[0] not in ("mutants", ".lab") and str(inside) not in names:
            file.unlink()
            (folder / "mutants" / inside).unlink(missing_ok=True)
    top, mutated = ({name.partition("/")[0] for name in among} for among in (names, sources))
    only = f"only_mutate = {sorted(sources)!r}"
    settings = {
        "source_paths": sorted(mutated),
        "also_copy": sorted(top - mutated - {_SETTINGS}),  # what is copied is mutated again in each run
        "pytest_add_cli_args_test_selection": [*tests],
        "pytest_add_cli_args": ["-m", MARKS, "-p", "no:cacheprovider", "-p", "no:randomly", *UNABLE],
        "process_isolation": "forkserver",
    }
    project, file = (root / _SETTINGS).read_text(encoding="utf-8"), folder / _SETTINGS
    if file.is_file() and only not in file.read_text(encoding="utf-8").splitlines():
        # mutmut would take a file that it has copied before for one that it has mutated.
        shutil.rmtree(folder / "mutants", ignore_errors=True)
    lines = [only, *(f"{key} = {value!r}" for key, value in settings.items())]
    file.write_text("\n".join([project, "[tool.mutmut]", *lines, ""]), encoding="utf-8")


def _copy(source: Path, target: Path) -> bool:
    """Copy a file unless it is equal; return whether it was copied."""
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return True


def generate(folder: Path, *, processes: int) -> None:
    """Write the mutants without trying any: mutmut has no command for this alone."""
    (folder / "mutants").mkdir(exist_ok=True)
    _call(folder, f"{_GENERATE}; create_mutants({processes})").check_returncode()


def learn_calls(folder: Path) -> dict[str, list[str]]:
    """Run the tests without a mutant; return which of them call each function, by mutmut's name for it.

    Raises:
        RuntimeError: a test fails, with its name and why; mutmut prints neither.
    """
    report = _statistics(folder).with_suffix(".xml")
    for left in (_statistics(folder), report):  # of an earlier run
        left.unlink(missing_ok=True)
    script = f"{_GENERATE}; create_mutants(1); collect_or_load_stats(get_mutant_runner())"
    if _call(folder, script, PYTEST_ADDOPTS=f"--junit-xml={report}").returncode:
        raise RuntimeError(f"a test fails without a mutant:\n{_failures(report) or 'read the output above'}")
    calls: dict[str, list[str]] = _read_statistics(folder)[_CALLS]
    return calls


def _failures(report: Path) -> str:
    """Return the tests that failed, with their errors, by a report in JUnit's format."""
    cases = ET.parse(report).iter("testcase") if report.exists() else ()  # noqa: S314 -- pytest has just written it
    failed = [(case, problem) for case in cases for problem in case if problem.tag in ("failure", "error")]
    return "\n".join(f"{case.get('classname')}::{case.get('name')}: {problem.text}" for case, problem in failed)


def assign(folder: Path, calls: Mapping[str, Sequence[str]]) -> None:
    """Set the tests that try the mutants of each function."""
    _statistics(folder).write_text(json.dumps(_read_statistics(folder) | {_CALLS: calls}), encoding="utf-8")


def run(folder: Path, *, processes: int, seconds: float | None = None) -> bool:
    """Try the mutants that have not been tried, by the tests that are assigned; return whether time sufficed.

    Raises:
        RuntimeError: mutmut failed before it tried any; its output has been printed.
    """
    command = [sys.executable, "-c", f"{_RUN}; _run((), {processes})"]
    with subprocess.Popen(command, cwd=folder, env=_environment()) as process:
        in_time = _ends_within(process, seconds)
    if in_time and process.returncode:
        raise RuntimeError(f"mutmut failed with exit code {process.returncode}: read its output above")
    return in_time


def _ends_within(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait for a process, or end it, in a way that it can clean up; return whether time sufficed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_S)
        return False
    return True


def run_with_api_server(folder: Path, tests: str, *, mutant: str = "", seconds: float) -> int | None:
    """Run the tests of a folder that need an API server, and nothing else that MARKS leaves out, with a mutant or none.

    mutmut would start a control plane for each mutant and test. Return pytest's exit code, None if time did not
    suffice.
    """
    marks = MARKS.replace("not apiserver", "apiserver")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks, tests]
    environment = {**_environment(), "MUTANT_UNDER_TEST": mutant}
    with subprocess.Popen(command, cwd=folder / "mutants", env=environment, stdout=subprocess.DEVNULL) as process:
        return process.returncode if _ends_within(process, seconds) else None


def _call(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = _environment() | variables
    return subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=False)


def _environment() -> dict[str, str]:
    # A module with all its mutants takes seconds to compile, and tests start processes that import many of them.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "TEST_PATIENCE_SECONDS": f"{_PATIENCE_S}"}


def _statistics(folder: Path) -> Path:
    return folder / "mutants" / "mutmut-stats.json"


def _read_statistics(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_statistics(folder).read_text(encoding="utf-8"))
    return read
