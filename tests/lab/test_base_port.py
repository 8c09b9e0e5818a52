from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lab import base_port
from lab.errors import LabError
from lab.layout import DEFAULT_BASE_PORT, PORT_BLOCK, Layout, Port, remembered
from tests.lab.support.listening import free_block, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(base_port.VARIABLE, raising=False)


@pytest.fixture
def taken_default() -> Iterator[None]:
    """Hold the default port of the webhook, unless another process already does."""
    listener = listen(DEFAULT_BASE_PORT + Port.WEBHOOK)
    yield
    if listener is not None:
        listener.close()


def test_a_taken_default_port_moves_a_new_lab(tmp_path: Path, taken_default: None) -> None:
    """A start chooses another block of ports, and names the taken port and its process."""
    layout, line = base_port.choose(tmp_path)
    assert layout.base_port > DEFAULT_BASE_PORT
    assert layout.base_port % PORT_BLOCK == 0
    assert line.startswith(f"{layout.base_port} to ")
    assert f"port {DEFAULT_BASE_PORT + Port.WEBHOOK} for webhook is taken by " in line


def test_a_requested_port_that_is_taken_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LAB_BASE_PORT is never overridden: the error has the port, its purpose, the process and the next step."""
    block = free_block()
    monkeypatch.setenv(base_port.VARIABLE, str(block))
    assert base_port.choose(tmp_path)[0].base_port == block
    held = listen(block + Port.KUBE_APISERVER)
    assert held is not None
    expected = (
        rf"port {block + 2} for kube-apiserver is taken by pid {os.getpid()} \(.+\); stop it, or unset LAB_BASE_PORT"
    )
    with held, pytest.raises(LabError, match=expected):
        base_port.choose(tmp_path)


def test_a_started_lab_keeps_its_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing cluster keeps its ports; a start that requests others is an error with the next step."""
    started = Layout(root=tmp_path, base_port=free_block())
    started.remember()
    started.etcd_data.mkdir()
    assert base_port.choose(tmp_path)[0] == started
    monkeypatch.setenv(base_port.VARIABLE, "64000")
    with pytest.raises(
        LabError, match=rf"with base port {started.base_port}, not 64000; run `make down` first, unset LAB_BASE_PORT"
    ):
        base_port.choose(tmp_path)


def test_a_start_that_failed_early_does_not_fix_the_ports(tmp_path: Path) -> None:
    """If a start created no cluster, the next start may use the requested ports."""
    Layout(root=tmp_path, base_port=64000).remember()
    block = free_block()
    assert base_port.choose(tmp_path, asked=block)[0].base_port == block


@pytest.mark.parametrize("variable", ["", "8", "abc", "21001", "64000"])
def test_commands_find_a_started_lab_regardless_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """`down`, `status` and `doctor` read the record of the start, not the environment."""
    monkeypatch.setenv(base_port.VARIABLE, variable)
    Layout(root=tmp_path, base_port=23000).remember()
    assert base_port.find(tmp_path) == remembered(tmp_path)
    assert base_port.find(tmp_path).base_port == 23000


@pytest.mark.parametrize(
    ("variable", "base"),
    [("", DEFAULT_BASE_PORT), ("abc", DEFAULT_BASE_PORT), ("8", DEFAULT_BASE_PORT), ("64000", 64000)],
)
def test_without_a_lab_commands_use_the_ports_of_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, base: int
) -> None:
    """Leftovers without a record are found by the variable's ports; an invalid variable is ignored."""
    monkeypatch.setenv(base_port.VARIABLE, variable)
    assert base_port.find(tmp_path).base_port == base


def test_a_start_rejects_a_variable_that_is_not_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the variable, its value and an example."""
    monkeypatch.setenv(base_port.VARIABLE, "abc")
    with pytest.raises(LabError, match="LAB_BASE_PORT=abc: it is not a number; unset it, or set 21000 for example"):
        base_port.choose(tmp_path)
