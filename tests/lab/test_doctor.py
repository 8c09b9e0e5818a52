from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import binaries, doctor, real_node
from lab.__main__ import main
from lab.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path


def test_missing_node_support_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot run a real node can still run the lab; the check names the remedy."""
    monkeypatch.setattr(real_node, "unsupported", lambda: ["not root: run as root, or pass --no-real-node"])
    checks = doctor.examine(Layout(root=tmp_path, base_port=26000))
    node = next(check for check in checks if check.name == "real node")
    assert "optional  not root: run as root" in str(node)
    assert doctor.is_healthy([node])


@pytest.mark.parametrize(("missing", "count"), [([], 3), (["not root"], 0)], ids=["real-node", "no-real-node"])
def test_containerd_is_built_only_for_a_real_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str], count: int
) -> None:
    """A machine that cannot run a real node needs no containerd."""
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "missing", list)
    monkeypatch.setattr(real_node, "unsupported", lambda: missing)
    checks = doctor.examine(Layout(root=tmp_path, base_port=26000))
    detail = next(check.detail for check in checks if check.name == "binaries")
    assert detail.startswith(f"{count} to build" if count else "Kubernetes v1.34.4, nothing to build")


def test_a_crash_is_reported_with_its_remedy(tmp_path: Path) -> None:
    """A started lab without processes is reported with the command that cleans up."""
    layout = Layout(root=tmp_path, base_port=26000)
    layout.remember()
    assert any("a crash left" in check.detail and "make down" in check.detail for check in doctor.examine(layout))


def test_a_start_with_another_base_port_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cluster in the folder keeps its base port, and the error names both."""
    layout = Layout(root=tmp_path, base_port=26000)
    layout.remember()
    layout.etcd_data.mkdir()
    assert main(["up", "--root", str(tmp_path), "--base-port", "27000"]) == 1
    assert "was started with base port 26000, not 27000" in capsys.readouterr().err


def test_doctor_reports_an_invalid_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid LAB_BASE_PORT is the result of a check and does not end the command."""
    monkeypatch.setenv("LAB_BASE_PORT", "abc")
    assert main(["doctor", "--root", str(tmp_path)]) == 1
    assert "ports            missing   LAB_BASE_PORT=abc: it is not a number" in capsys.readouterr().out


@pytest.mark.parametrize("variable", ["8", "abc", "27000"])
def test_a_failed_start_is_taken_down_regardless_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    """After a failed start, `status` and `down` use the ports in the record."""
    layout = Layout(root=tmp_path, base_port=26000)
    layout.remember()
    monkeypatch.setenv("LAB_BASE_PORT", variable)
    assert main(["status", "--root", str(tmp_path)]) == 1
    assert "scheduler        not running" in capsys.readouterr().out
    assert main(["down", "--root", str(tmp_path)]) == 0
    assert not layout.is_remembered


def test_down_without_a_lab_succeeds(tmp_path: Path) -> None:
    """`down` succeeds in a folder without a lab."""
    assert main(["down", "--root", str(tmp_path), "--base-port", "26000"]) == 0
