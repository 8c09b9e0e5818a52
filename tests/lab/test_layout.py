from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from lab import ports
from lab.errors import LabError
from lab.layout import PORT_BLOCK, Layout, Port, remembered


def test_layouts_with_other_base_ports_share_no_name(tmp_path: Path) -> None:
    """Two labs side by side have no port, address, bridge or control group in common."""
    first, second = (Layout(root=tmp_path / str(port), base_port=port) for port in (21000, 22000))
    assert not {first.port(port) for port in Port} & {second.port(port) for port in Port}
    for name in ("node_address", "pod_subnet", "service_subnet", "bridge", "cgroup", "server"):
        assert getattr(first, name) != getattr(second, name)


def test_ports_stay_in_the_block_and_the_bridge_name_in_the_kernels_limit(tmp_path: Path) -> None:
    """A lab's ports never reach into the next block, and an interface name has at most 15 characters."""
    layout = Layout(root=tmp_path, base_port=65400)
    assert max(Port) < PORT_BLOCK
    assert len(layout.bridge) <= 15


@pytest.mark.parametrize("base_port", [0, 900, 21001, 65500, 70000])
def test_impossible_base_port_is_refused_with_the_rule(tmp_path: Path, base_port: int) -> None:
    """A base port out of range or out of step is refused, with the rule and the flag."""
    with pytest.raises(LabError, match=rf"base port {base_port}: it must be a multiple of 100 .* --base-port"):
        Layout(root=tmp_path, base_port=base_port)


def test_folder_too_deep_for_sockets_is_refused() -> None:
    """A folder whose sockets the kernel could not bind is refused before anything starts."""
    with pytest.raises(LabError, match="the kernel allows 107"):
        Layout(root=Path("/" + "x" * 100))


def test_lab_remembers_its_base_port(tmp_path: Path) -> None:
    """A later command on the same folder finds the base port that the lab was started with."""
    layout = Layout(root=tmp_path, base_port=23000)
    assert remembered(tmp_path) is None
    layout.remember()
    assert remembered(tmp_path) == layout
    assert layout.is_remembered
    assert not layout.is_stale
    layout.forget()
    assert remembered(tmp_path) is None


def test_lab_of_an_earlier_boot_is_stale(tmp_path: Path) -> None:
    """After a restart of the machine, what the folder says about running processes is not believed."""
    layout = Layout(root=tmp_path)
    layout.remember()
    note = json.loads((tmp_path / "layout.json").read_bytes())
    (tmp_path / "layout.json").write_text(json.dumps({**note, "boot": "another"}))
    assert layout.is_stale


def test_taken_port_is_named_with_its_user_and_the_remedy(tmp_path: Path) -> None:
    """Before a start, a taken port is refused: which, for whom, and how to move."""
    with socket.socket() as other:
        base_port = next(port for port in range(24000, 30000, PORT_BLOCK) if _bind(other, port + Port.KUBE_APISERVER))
        layout = Layout(root=tmp_path, base_port=base_port)
        assert ports.taken(layout, [Port.KUBE_APISERVER]) == [Port.KUBE_APISERVER]
        with pytest.raises(
            LabError, match=rf"port {base_port + 2} for kube-apiserver: .* --base-port \(LAB_BASE_PORT\)"
        ):
            ports.require_free(layout, [Port.KUBE_APISERVER])
    ports.require_free(layout, [Port.KUBE_APISERVER])


def _bind(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        return False
    return True
