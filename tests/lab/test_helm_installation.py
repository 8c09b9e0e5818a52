"""`make install-lab` begins only where it can end; the installation itself is tried in tests/install."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import helm_installation, real_node
from lab.errors import LabError
from lab.layout import Layout
from lab.processes import Daemon

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were begun, on a machine that can run a node; none does anything."""
    begun: list[str] = []
    monkeypatch.setattr(real_node, "unsupported", list)
    for name in ("start", "install"):
        monkeypatch.setattr(helm_installation, name, lambda _, name=name: begun.append(name))
    return begun


def test_the_chart_is_installed_after_the_cluster_was_started(steps: list[str], tmp_path: Path) -> None:
    """Both steps are those of tests/install/test_whole_life.py."""
    helm_installation.up(Layout(tmp_path, 14900))
    assert steps == ["start", "install"]


def test_a_lab_with_processes_is_left_alone(steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Tranches in one cluster would both schedule its pods."""
    monkeypatch.setattr(Daemon, "is_running", property(lambda daemon: daemon.name == "scheduler"))
    with pytest.raises(LabError, match="as processes, not as pods.*make down"):
        helm_installation.up(Layout(tmp_path, 14900))
    assert steps == []


def test_a_machine_without_a_real_node_says_so_first(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has what is missing, and what works without it."""
    monkeypatch.setattr(real_node, "unsupported", lambda: ["runc is not installed"])
    with pytest.raises(LabError, match="runc is not installed.*make up"):
        helm_installation.up(Layout(tmp_path, 14900))
    assert steps == []
