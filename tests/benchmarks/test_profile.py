"""Flame graphs of a process."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from benchmarks import profile

_HAS_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def _function_to_be_sampled() -> None:
    end = time.process_time() + 1.0
    while time.process_time() < end:
        sum(range(1000))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of another process")
@pytest.mark.skipif(not _HAS_SPY, reason="py-spy is not installed")
def test_flame_graph_contains_the_functions_of_the_process(tmp_path: Path) -> None:
    """The process may be the caller itself."""
    path = tmp_path / "new" / "flame.svg"
    with profile.recorded(os.getpid(), path):
        _function_to_be_sampled()
    assert path.read_text().count("_function_to_be_sampled")


def test_missing_py_spy_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, and no empty file is left."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="py-spy is not installed"), profile.recorded(os.getpid(), tmp_path / "a.svg"):
        pass
