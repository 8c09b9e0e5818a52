"""containerd with its own folders, socket and images, separate from one that the machine runs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from lab import images, namespace, network, wait
from lab.errors import LabError
from lab.files import write_private
from lab.processes import Daemon

if TYPE_CHECKING:
    from lab.layout import Layout

PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
READY_S = 30.0
RUNC = {"runtime_type": "io.containerd.runc.v2"}


def start(layout: Layout) -> None:
    """Start containerd, wait until it responds, and import the lab's images."""
    daemon = Daemon(layout, "containerd")
    if daemon.is_running:
        return
    configuration = write_private(layout.config / "containerd.toml", _toml(_configuration(layout)))
    layout.containerd_socket.unlink(missing_ok=True)
    daemon.start(namespace.inside(layout, ["containerd", "--config", configuration]))
    wait.until(
        lambda: _ctr(layout, "version").returncode == 0, what="containerd ready", timeout_s=READY_S, daemons=[daemon]
    )
    program, applets = images.read_busybox()
    archive = write_private(layout.node / "images.tar", images.archive(images.ALL, program=program, applets=applets))
    imported = _ctr(layout, "--namespace", "k8s.io", "images", "import", str(archive))
    if imported.returncode:
        raise LabError("images", why=imported.stderr.strip(), remedy=f"read {daemon.log}")


def _configuration(layout: Layout) -> dict[str, Any]:
    """Return the tables of containerd's configuration, in version 2, which 1.6 to 2.x read."""
    return {
        "": {
            "version": 2,
            "root": str(layout.node / "containerd"),
            "state": str(layout.node / "containerd-state"),
        },
        "grpc": {"address": str(layout.containerd_socket)},
        "plugins.'io.containerd.internal.v1.opt'": {"path": str(layout.node / "opt")},
        "plugins.'io.containerd.grpc.v1.cri'": {
            "sandbox_image": images.PAUSE.name,
            "disable_apparmor": True,
            # Without CAP_SYS_RESOURCE, as in many virtual machines, a sandbox with a lower OOM score than this process
            # fails with "can't get final child's PID from pipe: EOF".
            "restrict_oom_score_adj": True,
            "stream_server_address": "127.0.0.1",
            "stream_server_port": "0",
        },
        "plugins.'io.containerd.grpc.v1.cri'.cni": {
            "bin_dir": str(network.plugin_folder()),
            "conf_dir": str(network.configure(layout)),
        },
        "plugins.'io.containerd.grpc.v1.cri'.containerd": {"snapshotter": "overlayfs", "default_runtime_name": "runc"},
        "plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc": RUNC,
        # The handler that NVIDIA's container toolkit installs; without a GPU it injects nothing.
        "plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia": RUNC,
    }


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return tables of strings, numbers and booleans, which TOML and JSON write alike, as TOML."""
    sections = []
    for name, entries in tables.items():
        lines = [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
        sections.append("\n".join([f"[{name}]", *lines] if name else lines))
    return "\n\n".join(sections) + "\n"


def _ctr(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ctr", "--address", layout.containerd_socket, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
