"""A copy of the checkout in which mutmut changes the code and runs the tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".lab" / "mutants"
MARKS: Final = " and ".join(
    f"not {mark}" for mark in ("apiserver", "kubelet", "helm", "image", "archive", "promtool", "browser")
)
UNABLE: Final = ("--ignore=tests/cli/test_base_installation.py",)
"""Tests that cannot run mutants: those of an installation without packages for development, so without mutmut."""
_STOP_S: Final = 60


def prepare(folder: Path, *, sources: Sequence[str], tests: Sequence[str], root: Path = ROOT) -> None:
    """Copy what git knows, or would know, and write mutmut's settings.

    Files that are equal stay as they are, with mutmut's results for them.

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
    for name in names:
        _copy(root / name, folder / name)
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        inside = file.relative_to(folder)
        if inside.parts[0] not in ("mutants", ".lab") and str(inside) not in names:
            file.unlink()
    top = {name.partition("/")[0] for name in names}
    settings = {
        "source_paths": sorted({name.partition("/")[0] for name in sources}),
        "only_mutate": sorted(sources),
        "also_copy": sorted(top - {"pyproject.toml"}),
        "pytest_add_cli_args_test_selection": [*tests],
        "pytest_add_cli_args": ["-m", MARKS, "-p", "no:cacheprovider", "-p", "no:randomly", *UNABLE],
        "process_isolation": "forkserver",
    }
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    lines = [f"{key} = {value!r}" for key, value in settings.items()]
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def generate(folder: Path, *, processes: int) -> None:
    """Write the mutants without trying any: mutmut has no command for this alone."""
    script = (
        "from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants, setup_source_paths;"
        f"copy_src_dir(); copy_also_copy_files(); setup_source_paths(); create_mutants({processes})"
    )
    (folder / "mutants").mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)


def run(folder: Path, names: Sequence[str] = (), *, processes: int, seconds: float | None = None) -> bool:
    """Try the mutants that are named, by default those that have not been tried; return whether time sufficed.

    Raises:
        RuntimeError: mutmut failed before it tried any; its output has been printed.
    """
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *names]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_S)
            return False
    if process.returncode:
        raise RuntimeError(f"mutmut failed with exit code {process.returncode}: read its output above")
    return True
