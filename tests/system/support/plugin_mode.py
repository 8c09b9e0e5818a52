"""A node whose kubelet advertises GPUs, and how it forgets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lab import kubectl, kubelet, real_node, wait
from lab import namespace as node_namespace
from lab.client import client
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.support import device_plugin

if TYPE_CHECKING:
    from lab.layout import Layout

GPU = "nvidia.com/gpu"


def advertised(layout: Layout) -> str | None:
    """Return the number of GPUs that the kubelet advertises, or None without the resource."""
    count: str | None = client(layout).get("node", layout.node_name)["status"]["allocatable"].get(GPU)
    return count


def advertises(layout: Layout, value: str | None) -> None:
    """Wait until the kubelet advertises `value` GPUs."""
    wait.until(lambda: advertised(layout) == value, what=f"{GPU} of {layout.node_name} {value}", timeout_s=PATIENCE_S)


def drain(layout: Layout, daemon: str) -> None:
    """Take a node out of plugin mode, as docs/hami.md says: remove plugin, kubelet checkpoint and resource."""
    Daemon(layout, daemon).stop()
    advertises(layout, "0")
    kubelet.stop(layout)
    checkpoint = device_plugin.FOLDER / "kubelet_internal_checkpoint"
    remover = Daemon(layout, "checkpoint-remover")
    remover.start(node_namespace.inside(layout, ["rm", "-f", str(checkpoint)]))
    wait.until(lambda: not remover.is_running, what="a removed checkpoint", timeout_s=PATIENCE_S)
    _forget_resource(layout)
    restart_kubelet(layout)


def restart_kubelet(layout: Layout) -> None:
    """Start the kubelet again, and return when the node is Ready."""
    kubelet.stop(layout)
    kubelet.start(layout)
    wait.until(lambda: real_node.is_ready(layout), what="a Ready node", timeout_s=PATIENCE_S)


def _forget_resource(layout: Layout) -> None:
    """Remove the resource from the Node, because with a 0 there the kubelet rejects every pod that requests it.

    No kubelet may run meanwhile: a starting kubelet computes the allocatable resources from the Node's capacity, and
    would overwrite the patch if it had read the Node before.
    """
    escaped = GPU.replace("/", "~1")
    patch = [{"op": "remove", "path": f"/status/{part}/{escaped}"} for part in ("capacity", "allocatable")]
    kubectl.run(
        layout,
        *("patch", "node", layout.node_name, "--subresource", "status", "--type", "json", "-p", json.dumps(patch)),
    )
