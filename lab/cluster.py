"""Start and stop the whole lab. Both are idempotent, and `down` needs only the names in the layout."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from lab import (
    binaries,
    components,
    containerd,
    control_plane,
    kubernetes_service,
    manifests,
    plugin,
    ports,
    processes,
    real_node,
    verify,
    wait,
)
from lab.errors import LabError
from lab.processes import Daemon
from lab.steps import step

if TYPE_CHECKING:
    from lab.layout import Layout

_RELEASE_S = 3.0


def up(layout: Layout, *, with_real_node: bool = True) -> None:
    """Start the cluster and Tranche's processes, as far as they do not run.

    Raises:
        LabError: Helm has installed Tranche in this lab, or a step failed. Started processes and their logs stay until
            `down`.
    """
    if Daemon(layout, kubernetes_service.NAME).is_running:
        why = "Tranche runs there as pods, installed by Helm"
        raise LabError(f"lab in {layout.root}", why=why, remedy="run `make down`, or set LAB_ROOT to another folder")
    has_real_node = start(layout, with_real_node=with_real_node)
    with step("manifests") as outcome:
        outcome.append(f"{manifests.install(layout)} objects applied")
    with step("processes") as outcome:
        components.up(layout, real_node=has_real_node)
        outcome.append("webhook, scheduler, agent and simulated nodes are ready")
    with step("verify") as outcome:
        outcome.append(", ".join(verify.verify(layout)))


def start(layout: Layout, *, with_real_node: bool) -> bool:
    """Start control plane and real node, and first remove what an earlier boot or an early failure left.

    Return whether the cluster has a real node: the machine may not support one.

    Raises:
        LabError: a step failed. Started processes and their logs stay until `down`.
    """
    if layout.is_remembered and not layout.has_cluster:
        with step("leftovers") as outcome:
            down(layout)
            outcome.append("of a failed start or of an earlier boot: removed")
    layout.remember()
    missing = real_node.unsupported() if with_real_node else []
    names = [name for name in binaries.PACKAGES if name != "kubelet" or (with_real_node and not missing)]
    with step("binaries") as outcome:
        binaries.provide(layout.bin, names)
        if "kubelet" in names:
            containerd.provide(layout.bin)
        plugin.link_programs(layout)
        outcome.append(f"Kubernetes {binaries.kubernetes_version()} in {layout.bin}")
    with step("control plane") as outcome:
        control_plane.up(layout)
        outcome.append(f"ready at {layout.server}")
    if with_real_node:
        with step("real node") as outcome:
            if missing:
                outcome.append(f"skipped: {'; '.join(missing)}")
            else:
                real_node.up(layout)
                outcome.append(f"{layout.node_name} is Ready at {layout.node_address}")
    return with_real_node and not missing


def _are_ports_in_use(layout: Layout) -> bool:
    """Whether a lab in another folder uses these ports; a killed process releases its ports only after a moment."""
    deadline = time.monotonic() + _RELEASE_S
    while ports.taken(layout, real_node.PORTS):
        if time.monotonic() >= deadline:
            return True
        time.sleep(wait.INTERVAL_S)
    return False


def down(layout: Layout) -> list[str]:
    """Stop every process of the lab and remove everything but logs and evidence.

    Returns:
        What was kept because a lab in another folder uses the same ports, and therefore the same names.

    Raises:
        LabError: a process or an object of the machine could not be removed.
    """
    processes.stop_all(layout)
    left = real_node.leftovers(layout) if _are_ports_in_use(layout) else []
    if not left:
        real_node.remove(layout)
        # After the node: connections whose other end is gone keep the pods' network namespaces alive.
        kubernetes_service.remove(layout)
    for folder in (layout.bin, layout.config, layout.etcd_data, layout.pki, layout.run, layout.component_kubeconfigs):
        shutil.rmtree(folder, ignore_errors=True)
    layout.kubeconfig.unlink(missing_ok=True)
    layout.forget()
    return left
