"""containerd 2, which injects CDI devices and has NRI plugins, separate from one that the machine runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import images, namespace, network, wait
from lab.errors import LabError
from lab.files import link, write_private
from lab.go_module import GoModule
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout

_IMPORT_PATH = "github.com/containerd/containerd/v2"
_SHIM = "containerd-shim-runc-v2"
MODULE = GoModule(
    folder=Path(__file__).with_name("containerd"),
    requirement=_IMPORT_PATH,
    packages={name: f"{_IMPORT_PATH}/cmd/{name}" for name in ("containerd", _SHIM, "ctr")},
    stamps=lambda version: {f"{_IMPORT_PATH}/version.Version": version},
    build_gib=2.5,
)


def provide(folder: Path, *, report: Callable[[str], None] = print) -> None:
    """Link the programs of containerd into `folder`, and build those that are not cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODULE.packages:
        link(folder / name, MODULE.provide(name, report=report))


def start(layout: Layout) -> None:
    """Start containerd, wait until it responds, and import the lab's images."""
    daemon = Daemon(layout, "containerd")
    if daemon.is_running:
        return
    configuration = write_private(layout.config / "containerd.toml", _toml(_configuration(layout)))
    layout.cdi_specs.mkdir(parents=True, exist_ok=True)
    layout.containerd_socket.unlink(missing_ok=True)
    daemon.start(namespace.inside(layout, [layout.bin / "containerd", "--config", configuration]))
    wait.until(lambda: _ctr(layout, "version").returncode == 0, what="containerd ready", daemons=[daemon])
    program, applets = images.read_busybox()
    archive = write_private(layout.node / "images.tar", images.archive(images.ALL, program=program, applets=applets))
    imported = _ctr(layout, "--namespace", "k8s.io", "images", "import", str(archive))
    if imported.returncode:
        raise LabError("images", why=imported.stderr.strip(), remedy=f"read {daemon.log}")


def _configuration(layout: Layout) -> dict[str, Any]:
    """Return the tables of containerd's configuration, in version 3."""
    # Without the path, containerd starts the first shim on PATH, which may be the machine's older one.
    runc = {"runtime_type": "io.containerd.runc.v2", "runtime_path": str(layout.bin / _SHIM)}
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return {
        "": {
            "version": 3,
            "root": str(layout.node / "containerd"),
            "state": str(layout.node / "containerd-state"),
        },
        "grpc": {"address": str(layout.containerd_socket)},
        "plugins.'io.containerd.internal.v1.opt'": {"path": str(layout.node / "opt")},
        "plugins.'io.containerd.cri.v1.images'": {"snapshotter": "overlayfs"},
        "plugins.'io.containerd.cri.v1.images'.pinned_images": {"sandbox": images.PAUSE.name},
        runtime: {
            "disable_apparmor": True,
            # Without CAP_SYS_RESOURCE, as in many virtual machines, a sandbox with a lower OOM score than this process
            # fails with "can't get final child's PID from pipe: EOF".
            "restrict_oom_score_adj": True,
            "cdi_spec_dirs": [str(layout.cdi_specs)],
        },
        f"{runtime}.cni": {
            "bin_dirs": [str(network.plugin_folder())],
            "conf_dir": str(network.configure(layout)),
        },
        f"{runtime}.containerd": {"default_runtime_name": "runc"},
        f"{runtime}.containerd.runtimes.runc": runc,
        # The handler that NVIDIA's container toolkit installs; without a GPU it injects nothing.
        f"{runtime}.containerd.runtimes.nvidia": runc,
        "plugins.'io.containerd.grpc.v1.cri'": {"stream_server_address": "127.0.0.1", "stream_server_port": "0"},
        "plugins.'io.containerd.nri.v1.nri'": {
            "disable": False,
            "socket_path": str(layout.nri_socket),
            "plugin_path": str(layout.node / "nri-plugins"),
            "plugin_config_path": str(layout.node / "nri-config"),
            # By default a plugin is dropped after two seconds without an answer, which a loaded machine may need.
            "plugin_request_timeout": "20s",
        },
        # Refuses the containers of pods that name a plugin which is not there, as docs/agent.md tells operators to.
        "plugins.'io.containerd.nri.v1.nri'.default_validator": {"enable": True},
    }


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return tables of strings, numbers, booleans and lists of these, which TOML and JSON write alike, as TOML."""
    sections = []
    for name, entries in tables.items():
        lines = [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
        sections.append("\n".join([f"[{name}]", *lines] if name else lines))
    return "\n\n".join(sections) + "\n"


def _ctr(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [layout.bin / "ctr", "--address", layout.containerd_socket, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
