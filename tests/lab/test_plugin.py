from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab import plugin
from lab.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

SHELLS = [shell for shell in ("sh", "bash", "zsh", "fish") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_line_works_with_any_folder_name(tmp_path: Path, shell: str) -> None:
    """Shells do not split or expand spaces, quotes and dollar signs in the lab's folder or the user's PATH."""
    layout = Layout(root=tmp_path / "a'b $HOME;c")
    script = f"{plugin.shell_line(layout)}\nprintenv KUBECONFIG PATH"
    done = subprocess.run(
        [str(shutil.which(shell)), "-c", script],
        env={"HOME": str(tmp_path), "PATH": f"/a folder:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    kubeconfig, path = done.stdout.splitlines()
    assert kubeconfig == str(layout.kubeconfig)
    assert path.split(":")[:2] == [str(layout.bin), "/a folder"]


def test_the_plugin_is_in_the_folder_of_kubectl(tmp_path: Path) -> None:
    """One folder on the PATH is enough for kubectl, `kubectl gpu` and its completion."""
    layout = Layout(root=tmp_path)
    layout.bin.mkdir()
    for _ in range(2):
        plugin.link_programs(layout)
    for name in ("kubectl-gpu", "kubectl_complete-gpu"):
        assert os.access(layout.bin / name, os.X_OK)
