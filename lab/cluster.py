"""The whole lab, up and down. Both may be repeated, and `down` needs nothing but the layout's names."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from lab import binaries, components, control_plane, manifests, ports, processes, real_node, verify, wait
from lab.steps import step

if TYPE_CHECKING:
    from lab.layout import Layout

_RELEASE_S = 3.0


def up(layout: Layout, *, with_real_node: bool = True) -> None:
    """Start what does not run, after cleaning up what the machine's last boot left.

    Raises:
        LabError: a step failed. What was started stays, for its logs; `down` removes it.
    """
    if layout.is_stale:
        with step("last boot") as outcome:
            down(layout)
            outcome.append("remains removed")
    layout.remember()
    lacks = real_node.unsupported() if with_real_node else []
    names = [name for name in binaries.PACKAGES if name != "kubelet" or (with_real_node and not lacks)]
    with step("binaries") as outcome:
        binaries.provide(layout.bin, names)
        outcome.append(f"Kubernetes {binaries.kubernetes_version()} in {layout.bin}")
    with step("control plane") as outcome:
        control_plane.up(layout)
        outcome.append(f"ready at {layout.server}")
    if with_real_node:
        with step("real node") as outcome:
            if lacks:
                outcome.append(f"left out: {'; '.join(lacks)}")
            else:
                real_node.up(layout)
                outcome.append(f"{layout.node_name} is Ready at {layout.node_address}")
    with step("manifests") as outcome:
        outcome.append(f"{manifests.install(layout)} objects applied")
    with step("processes") as outcome:
        components.up(layout, real_node=with_real_node and not lacks)
        outcome.append("webhook, scheduler, agent and simulated nodes are ready")
    with step("verify") as outcome:
        outcome.append(", ".join(verify.verify(layout)))


def _are_anothers(layout: Layout) -> bool:
    """Whether a lab in another folder has this one's ports. A process that was killed lets go of its own by and by."""
    deadline = time.monotonic() + _RELEASE_S
    while ports.taken(layout, real_node.PORTS):
        if time.monotonic() >= deadline:
            return True
        time.sleep(wait.INTERVAL_S)
    return False


def down(layout: Layout) -> list[str]:
    """Stop every process of the lab and remove everything but logs and evidence.

    Returns:
        What was left alone because a lab in another folder holds the same ports, and so the same names.

    Raises:
        LabError: something could not be removed.
    """
    processes.stop_all(layout)
    left = real_node.leftovers(layout) if _are_anothers(layout) else []
    if not left:
        real_node.remove(layout)
    for folder in (layout.bin, layout.config, layout.etcd_data, layout.pki, layout.run, layout.component_kubeconfigs):
        shutil.rmtree(folder, ignore_errors=True)
    layout.kubeconfig.unlink(missing_ok=True)
    layout.forget()
    return left
