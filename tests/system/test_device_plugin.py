"""A device plugin on the real node: its effect, and how a node leaves plugin mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allocation.names import ALLOCATION
from allocation.wire import environment, record
from lab import namespace as node_namespace
from lab import wait
from lab.processes import Daemon
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import device_plugin
from tests.system.support.plugin_mode import GPU, advertised, advertises, drain, restart_kubelet
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]
DAEMON = "device-plugin"
REPLICAS = 3


def start_plugin(layout: Layout, devices: int) -> Daemon:
    """Start a plugin with `devices` devices in the real node."""
    daemon = Daemon(layout, DAEMON)
    daemon.start(node_namespace.inside(layout, [sys.executable, Path(device_plugin.__file__).resolve(), str(devices)]))
    wait.until(lambda: advertised(layout) == str(devices), what="devices", timeout_s=PATIENCE_S, daemons=[daemon])
    return daemon


@pytest.fixture
def plugin(tranche_node: Layout) -> Iterator[Layout]:
    """The lab with a plugin on its real node; the node leaves plugin mode afterwards."""
    start_plugin(tranche_node, REPLICAS)
    yield tranche_node
    if advertised(tranche_node) is not None:
        drain(tranche_node, DAEMON)


def running(namespace: Namespace, *names: str) -> None:
    """Wait until pods run."""
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, *(f"pod/{name}" for name in names))


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
    Daemon(plugin, DAEMON).stop()
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
    drain(plugin, DAEMON)
    running(namespace, "waits")
    allocation = record.decode(namespace.pod("waits")["metadata"]["annotations"][ALLOCATION])
    assert exec_environment(namespace, "waits") == environment.values(allocation.containers["main"])
    assert advertised(plugin) is None
    restart_kubelet(plugin)
    namespace.create(pod("later", node=plugin.node_name, gpu=1, gpumem=1000))
    running(namespace, "later")
