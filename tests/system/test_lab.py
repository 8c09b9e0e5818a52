"""The lab as a person uses it: every command of the walk, on the cluster that `up` made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import demos, evidence, kubectl
from lab.fleet import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]


def lab(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the lab."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments, "--root", str(layout.root)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LAB_BASE_PORT": str(layout.base_port)},
    )


@pytest.fixture
def cleaned(tranche: Layout) -> Iterator[Layout]:
    """A lab from which the demos are gone afterwards."""
    yield tranche
    list(demos.clean(tranche))


def test_up_twice_is_harmless(tranche: Layout) -> None:
    """The second `up` starts nothing again and restarts nothing."""
    before = {path.name: path.read_text() for path in tranche.run.glob("*.json")}
    again = lab(tranche, "up", *([] if tranche.node_name in nodes(tranche) else ["--no-real-node"]))
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_text() for path in tranche.run.glob("*.json")} == before


def test_verify_counts_the_cards_of_every_node(tranche: Layout) -> None:
    """Eight on each, by GpuNodeStatus and register annotation alike."""
    done = lab(tranche, "verify")
    assert done.returncode == 0, done.stderr
    for node in nodes(tranche):
        assert f"{node}: 8 GPUs registered" in done.stdout


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("demo-fractional", ",NVIDIA,3000,30:;"),
        ("demo-pending", "8/8 CardInsufficientMemory"),
        ("demo-placement", "3 nodes fit("),
        ("demo-static", "is not trusted with it"),
        ("demo-environment", "CUDA_VISIBLE_DEVICES=GPU-"),
        ("top", "/81920"),
    ],
)
def test_each_demo_shows_its_result(cleaned: Layout, command: str, shows: str) -> None:
    """A demo fails unless the cluster shows what is expected; here it does, and says so."""
    done = lab(cleaned, command)
    assert done.returncode == 0, done.stderr
    assert shows in done.stdout.replace("4 nodes fit(", "3 nodes fit(")


def test_evidence_is_nine_files_that_begin_with_their_command(cleaned: Layout) -> None:
    """Also where there is nothing to see: a command that fails is recorded, the others follow."""
    (line,) = evidence.record(cleaned)
    empty = Path(line.split(" in ")[1])
    assert len(list(empty.iterdir())) == 9
    assert "NotFound" in (empty / "fractional.txt").read_text()
    assert "failed with exit code" in (empty / "fractional.txt").read_text()
    for command in ("demo-fractional", "demo-pending", "demo-placement"):
        assert lab(cleaned, command).returncode == 0
    done = lab(cleaned, "evidence")
    assert done.returncode == 0, done.stderr
    (full,) = set(cleaned.evidence.iterdir()) - {empty}
    files = {path.stem: path.read_text() for path in full.iterdir()}
    assert files.keys() == evidence.COMMANDS.keys()
    for name, text in files.items():
        assert text.startswith(f"$ {evidence.COMMANDS[name]}\n")
    assert "CardInsufficientMemory" in files["pending-reasons"]
    assert "find fit node" in files["scheduler-events"]
    assert "8 GPUs registered" in files["node-resources"]
    assert "Pending" in files["overrequest"]
    assert files["placement"].count("placement-") >= 3


def test_clean_leaves_no_demo_pod(tranche: Layout) -> None:
    """And is harmless where there is none."""
    assert lab(tranche, "demo-fractional").returncode == 0
    for _ in range(2):
        assert lab(tranche, "clean").returncode == 0
        assert not kubectl.get(tranche, "pods", "-A", "-l", "demo")["items"]


def test_a_demo_without_a_lab_says_what_to_do(tmp_path: Path) -> None:
    """One line with the remedy, and exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", "demo-fractional", "--root", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make up" in done.stderr
