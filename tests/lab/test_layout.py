from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab import ports
from lab.errors import LabError
from lab.layout import PORT_BLOCK, Layout, Port, remembered
from tests.lab.support.listening import free_block, listen


def test_layouts_with_different_base_ports_share_no_names(tmp_path: Path) -> None:
    """Two labs have no port, address, bridge or control group in common."""
    first, second = (Layout(root=tmp_path / str(port), base_port=port) for port in (21000, 22000))
    assert not {first.port(port) for port in Port} & {second.port(port) for port in Port}
    for name in ("node_address", "pod_subnet", "service_subnet", "bridge", "cgroup", "server"):
        assert getattr(first, name) != getattr(second, name)


def test_ports_stay_in_their_block_and_the_bridge_name_is_short(tmp_path: Path) -> None:
    """The ports do not reach the next block, and the kernel limits interface names to 15 characters."""
    layout = Layout(root=tmp_path, base_port=65400)
    assert max(Port) < PORT_BLOCK
    assert len(layout.bridge) <= 15


@pytest.mark.parametrize("base_port", [0, 900, 21001, 65500, 70000])
def test_an_invalid_base_port_is_rejected(tmp_path: Path, base_port: int) -> None:
    """The error for a base port out of range, or not a multiple of 100, has the rule and the flag."""
    with pytest.raises(LabError, match=rf"base port {base_port}: it must be a multiple of 100 .* --base-port"):
        Layout(root=tmp_path, base_port=base_port)


def test_a_folder_with_a_path_too_long_for_sockets_is_rejected() -> None:
    """The limit of the kernel for socket paths is checked before a process starts."""
    with pytest.raises(LabError, match="the kernel allows 107"):
        Layout(root=Path("/" + "x" * 100))


def test_the_base_port_of_a_start_is_recorded(tmp_path: Path) -> None:
    """A later command on the same folder reads the base port from the record."""
    layout = Layout(root=tmp_path, base_port=23000)
    assert remembered(tmp_path) is None
    layout.remember()
    assert remembered(tmp_path) == layout
    assert layout.is_remembered
    assert not layout.is_stale
    layout.forget()
    assert remembered(tmp_path) is None


def test_a_lab_of_an_earlier_boot_is_stale(tmp_path: Path) -> None:
    """After a restart of the machine, the records of running processes are ignored."""
    layout = Layout(root=tmp_path)
    layout.remember()
    note = json.loads((tmp_path / "layout.json").read_bytes())
    (tmp_path / "layout.json").write_text(json.dumps({**note, "boot": "another"}))
    assert layout.is_stale


def test_a_taken_port_is_reported_with_its_process_and_the_remedy(tmp_path: Path) -> None:
    """The error has the port, its purpose, the process that listens there, and the next step."""
    base_port = free_block()
    layout = Layout(root=tmp_path, base_port=base_port)
    listener = listen(base_port + Port.KUBE_APISERVER)
    assert listener is not None
    with listener:
        assert ports.taken(layout, [Port.KUBE_APISERVER]) == [Port.KUBE_APISERVER]
        taken = rf"port {base_port + 2} for kube-apiserver is taken by pid {os.getpid()} \(.+\)"
        with pytest.raises(LabError, match=taken + "; stop it, or run `make down`"):
            ports.require_free(layout, [Port.KUBE_APISERVER])
    ports.require_free(layout, [Port.KUBE_APISERVER])


def test_a_start_that_failed_early_left_no_cluster(tmp_path: Path) -> None:
    """A recorded lab has a cluster only if the data of etcd exists."""
    layout = Layout(root=tmp_path)
    assert not layout.has_cluster
    layout.remember()
    assert not layout.has_cluster
    layout.etcd_data.mkdir()
    assert layout.has_cluster
