from __future__ import annotations

from typing import TYPE_CHECKING

from lab import doctor, real_node
from lab.__main__ import main
from lab.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_missing_node_support_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot run a real node still runs the lab; the finding names the remedy."""
    monkeypatch.setattr(real_node, "unsupported", lambda: ["not root: run as root, or pass --no-real-node"])
    findings = doctor.examine(Layout(root=tmp_path, base_port=26000))
    node = next(finding for finding in findings if finding.name == "real node")
    assert "optional  not root: run as root" in str(node)
    assert doctor.is_healthy([node])


def test_crash_is_found_and_its_remedy_said(tmp_path: Path) -> None:
    """A lab that was started and has no processes is reported with the command that cleans up."""
    layout = Layout(root=tmp_path, base_port=26000)
    layout.remember()
    assert any("a crash left" in finding.detail and "lab down" in finding.detail for finding in doctor.examine(layout))


def test_other_base_port_than_the_labs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that names another base port than the lab in its folder was started with says so."""
    Layout(root=tmp_path, base_port=26000).remember()
    assert main(["up", "--root", str(tmp_path), "--base-port", "27000"]) == 1
    assert "was started with base port 26000, not 27000" in capsys.readouterr().err


def test_down_without_a_lab_is_harmless(tmp_path: Path) -> None:
    """`down` succeeds where nothing was ever up."""
    assert main(["down", "--root", str(tmp_path), "--base-port", "26000"]) == 0
