"""The archive for krew contains a `kubectl gpu` that needs no Python."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from cli import commands
from lab.image.build import version
from lab.release import archive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.archive, pytest.mark.long]


@pytest.mark.skipif(sys.platform != "linux", reason="unpacks the archive of Linux")
def test_unpacked_archive_runs_without_python(tmp_path: Path) -> None:
    """The executable runs by a link to it, as krew makes one, and has every subcommand."""
    built = archive.build(tmp_path)
    assert archive.find(tmp_path) == [built]
    with tarfile.open(built.path) as tar:
        assert all(member.isfile() or member.isdir() for member in tar), "krew unpacks neither links nor devices"
        tar.extractall(tmp_path / "store", filter="data")
    link = tmp_path / "kubectl-gpu"
    link.symlink_to(tmp_path / "store" / built.executable)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        empty = {"PATH": "/nowhere", "HOME": str(tmp_path)}
        return subprocess.run([link, *words], env=empty, capture_output=True, text=True, timeout=60, check=False)

    assert run("version", "--client").stdout == f"Client Version: {version()}\n"
    assert run("__complete", "unc").stdout.startswith("uncordon\t")
    for name, _ in commands.every():
        done = run(name, "--help")
        assert (done.returncode, done.stderr) == (0, ""), name
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("""
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
""")
    for line in (["top"], ["explain", "web"], ["env", "web"], ["cordon", "u"], ["preflight"]):
        done = run(*line, "--kubeconfig", str(kubeconfig))
        assert done.stderr.startswith("error: the API server http://127.0.0.1:1 cannot be reached"), line
