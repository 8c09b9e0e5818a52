"""Flame graphs are of the process that was asked for."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from benchmarks import profile

_HAS_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def _a_name_to_be_found() -> None:
    end = time.process_time() + 1.0
    while time.process_time() < end:
        sum(range(1000))


@pytest.mark.skipif(os.geteuid() != 0, reason="a process may look into another only as root")
@pytest.mark.skipif(not _HAS_SPY, reason="py-spy is not installed")
def test_what_a_process_does_is_in_its_flame_graph(tmp_path: Path) -> None:
    """This process is as good as another one."""
    path = tmp_path / "new" / "flame.svg"
    with profile.recorded(os.getpid(), path):
        _a_name_to_be_found()
    assert path.read_text().count("_a_name_to_be_found")


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of an empty file."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="there is no py-spy"), profile.recorded(os.getpid(), tmp_path / "a.svg"):
        pass
