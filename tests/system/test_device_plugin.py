"""A device plugin on the real node: its effect, and how a node leaves plugin mode."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allocation.names import ALLOCATION
from allocation.wire import environment, record
from lab import kubectl, kubelet, real_node, wait
from lab import namespace as node_namespace
from lab.client import client
from lab.processes import Daemon
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import device_plugin
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet, pytest.mark.timeout(240)]
GPU = "nvidia.com/gpu"
REPLICAS = 3


def advertised(layout: Layout) -> str | None:
    """Return the number of GPUs that the kubelet advertises, or None without the resource."""
    count: str | None = client(layout).get("node", layout.node_name)["status"]["allocatable"].get(GPU)
    return count


def advertises(layout: Layout, value: str | None) -> None:
    """Wait until the kubelet advertises `value` GPUs."""
    wait.until(lambda: advertised(layout) == value, what=f"{GPU} of {layout.node_name} {value}", timeout_s=PATIENCE_S)


def start_plugin(layout: Layout, devices: int) -> Daemon:
    """Start a plugin with `devices` devices in the real node."""
    daemon = Daemon(layout, "device-plugin")
    daemon.start(node_namespace.inside(layout, [sys.executable, Path(device_plugin.__file__).resolve(), str(devices)]))
    wait.until(lambda: advertised(layout) == str(devices), what="devices", timeout_s=PATIENCE_S, daemons=[daemon])
    return daemon


def drain(layout: Layout) -> None:
    """Take a node out of plugin mode, as docs/hami.md says: remove plugin, kubelet checkpoint and resource."""
    Daemon(layout, "device-plugin").stop()
    advertises(layout, "0")
    kubelet.stop(layout)
    checkpoint = device_plugin.FOLDER / "kubelet_internal_checkpoint"
    remover = Daemon(layout, "checkpoint-remover")
    remover.start(node_namespace.inside(layout, ["rm", "-f", str(checkpoint)]))
    wait.until(lambda: not remover.is_running, what="a removed checkpoint", timeout_s=PATIENCE_S)
    forget_resource(layout)
    kubelet.start(layout)
    wait.until(lambda: real_node.is_ready(layout), what="a Ready node", timeout_s=PATIENCE_S)


def forget_resource(layout: Layout) -> None:
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


@pytest.fixture
def plugin(tranche_node: Layout) -> Iterator[Layout]:
    """The lab with a plugin on its real node; the node leaves plugin mode afterwards."""
    start_plugin(tranche_node, REPLICAS)
    yield tranche_node
    if advertised(tranche_node) is not None:
        drain(tranche_node)


def running(namespace: Namespace, *names: str) -> None:
    """Wait until pods run."""
    namespace.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *(f"pod/{name}" for name in names))


def test_plugin_limits_pods_but_does_not_choose_cards(plugin: Layout, namespace: Namespace) -> None:
    """The pod's own environment wins. As many pods as replicas run, the next waits, and the kubelet rejects none."""
    names = [f"p{index}" for index in range(REPLICAS)]
    namespace.create(*(pod(name, node=plugin.node_name, gpu=1, gpumem=1000) for name in names))
    running(namespace, *names)
    for name in names:
        allocation = record.decode(namespace.pod(name)["metadata"]["annotations"][ALLOCATION])
        assert exec_environment(namespace, name) == environment.values(allocation.containers["main"])
        assert "PLUGIN_DEVICES=replica-" in namespace.kubectl("exec", name, "--", "env")
    namespace.create(pod("more", node=plugin.node_name, gpu=1, gpumem=1000))
    assert f"Insufficient {GPU}: the node's device plugin advertises {REPLICAS}" in namespace.unplaced("more")
    namespace.delete("pod", names[0])
    running(namespace, "more")


def test_drained_node_leaves_plugin_mode(plugin: Layout, namespace: Namespace, plain_namespace: Namespace) -> None:
    """While the kubelet advertises 0 GPUs nothing is placed there; a drained node runs pods without a plugin."""
    namespace.create(pod("held", node=plugin.node_name, gpu=1, gpumem=1000))
    running(namespace, "held")
    namespace.delete("pod", "held")
    Daemon(plugin, "device-plugin").stop()
    advertises(plugin, "0")
    forced = pod("forced", gpu=1)
    forced["spec"]["nodeName"] = plugin.node_name
    plain_namespace.create(forced)
    wait.until(
        lambda: plain_namespace.pod("forced")["status"].get("reason") == "UnexpectedAdmissionError",
        what="a pod that the kubelet refuses",
        timeout_s=PATIENCE_S,
    )
    plain_namespace.delete("pod", "forced")
    namespace.create(pod("waits", node=plugin.node_name, gpu=1, gpumem=1000))
    assert f"Insufficient {GPU}: the node's device plugin advertises 0" in namespace.unplaced("waits")
    drain(plugin)
    running(namespace, "waits")
    allocation = record.decode(namespace.pod("waits")["metadata"]["annotations"][ALLOCATION])
    assert exec_environment(namespace, "waits") == environment.values(allocation.containers["main"])
    assert advertised(plugin) is None
    kubelet.stop(plugin)
    kubelet.start(plugin)
    wait.until(lambda: real_node.is_ready(plugin), what="a Ready node", timeout_s=PATIENCE_S)
    namespace.create(pod("later", node=plugin.node_name, gpu=1, gpumem=1000))
    running(namespace, "later")
