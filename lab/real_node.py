"""A real node: kubelet, containerd and runc on this machine, in separate namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from lab import binaries, cgroups, containerd, images, kubelet, namespace, network, ports, wait
from lab.client import client
from lab.errors import LabError
from lab.layout import Port
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout

PORTS = (Port.KUBELET, Port.KUBELET_HEALTHZ)
PACKAGES = {
    "runc": "runc",
    **dict.fromkeys(namespace.PROGRAMS, "util-linux mount"),
    "ip": "iproute2",
}
# Kernel features that the node needs, tried in temporary namespaces.
TRIALS = {
    "the kernel cannot mount an overlay file system": (
        "unshare --mount sh -c 'mkdir lower upper work merged && mount -t overlay overlay"
        " -o lowerdir=lower,upperdir=upper,workdir=work merged'"
    ),
    "the kernel cannot create a bridge or veth interface": (
        "unshare --net sh -c 'ip link add trial type bridge && ip link add one type veth peer name two'"
    ),
}


def unsupported() -> list[str]:
    """Return what this machine lacks for a real node, each with its remedy; empty if it can run one."""
    if os.geteuid() != 0:
        return ["not root: run as root, or pass --no-real-node"]
    missing = [
        f"{program} is not installed: apt-get install {package}"
        for program, package in PACKAGES.items()
        if not shutil.which(program)
    ]
    if network.plugin_folder() is None:
        missing.append("CNI plugins are not installed: apt-get install containernetworking-plugins")
    try:
        images.read_busybox()
    except LabError as error:
        missing.append(str(error))
    return missing or _failed_trials()


def up(
    layout: Layout, *, report: Callable[[str], None] = print, provide: Callable[..., None] = binaries.provide
) -> None:
    """Start the node and return when it is Ready. The control plane must be running. Idempotent.

    `provide` brings the kubelet into the lab, as `binaries.provide` does.

    Raises:
        LabError: the machine cannot run a node, the path of the lab's folder is too long for the kubelet's sockets, a
            port is taken, or the node did not become Ready.
    """
    if missing := unsupported():
        raise LabError("real node", why="; ".join(missing), remedy="or pass --no-real-node")
    layout.check_socket(layout.kubelet / kubelet.LONGEST_SOCKET)
    provide(layout.bin, ("kubelet",), report=report)
    containerd.provide(layout.bin, report=report)
    if not Daemon(layout, "kubelet").is_running:
        ports.require_free(layout, PORTS)
    if not Daemon(layout, "node").is_running:
        remove(layout)
    network.add_address(layout)
    cgroups.create(layout)
    namespace.create(layout)
    containerd.start(layout)
    kubelet.start(layout)
    wait.until(
        lambda: is_ready(layout),
        what=f"node {layout.node_name} Ready",
        daemons=[Daemon(layout, "kubelet"), Daemon(layout, "containerd")],
    )


def is_ready(layout: Layout) -> bool:
    """Whether the node's condition Ready is True."""
    node = client(layout).find("node", layout.node_name) or {"status": {}}
    return ("Ready", "True") in ((each["type"], each["status"]) for each in node["status"].get("conditions", ()))


def remove(layout: Layout) -> None:
    """Remove the node from the machine: processes, mounts, interfaces, addresses, control groups and files.

    It needs only the names in the layout, not a record of what was started, so it also removes what a crash left.
    """
    namespace.remove(layout)
    for name in ("kubelet", "containerd"):
        Daemon(layout, name).stop()
    network.remove(layout)
    cgroups.remove(layout)
    shutil.rmtree(layout.node, ignore_errors=True)


def leftovers(layout: Layout) -> list[str]:
    """Return the objects of the node on the machine, other than processes."""
    objects = {
        f"control group {layout.cgroup}": bool(cgroups.existing(layout)),
        f"bridge {layout.bridge}": network.has_bridge(layout),
        f"address {layout.node_address} on lo": network.has_address(layout),
    }
    return [name for name, exists in objects.items() if exists]


def _failed_trials() -> list[str]:
    failed = []
    for meaning, command in TRIALS.items():
        with tempfile.TemporaryDirectory() as folder:
            trial = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, timeout=30, check=False)
        if trial.returncode:
            failed.append(f"{meaning} ({trial.stderr.decode(errors='replace').strip()}): use another machine")
    return failed
