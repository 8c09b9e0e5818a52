"""The agent as a process that is a device plugin of a kubelet, and what it learns of the API server's pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from agent.device_plugin.matching import Container
from allocation.allocation import Allocation, CardShare
from allocation.wire import environment
from lab import kubectl, wait
from lab.client import client
from tests.agent.support.cluster_view import published
from tests.agent.support.played_kubelet import RESOURCE, PlayedKubelet
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
NODE, NAMESPACE = "counted-1", "counted"
CARD = f"GPU-{NODE}-0"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path fits into that of a socket."""
    with TemporaryDirectory(prefix="kubelet-") as path:
        yield Path(path)


@pytest.fixture
def run(
    cluster: Layout, add_node: Callable[[str], None], run_agent: Callable[..., Any], fleet_file: Path, folder: Path
) -> Callable[..., Any]:
    """A function that starts the agent of a node with one card that two containers may share."""
    kubectl.run(cluster, "apply", "-f", str(ROOT / "manifests" / "device-plugin" / "agent.yaml"))
    add_node(NODE)
    fleet_file.write_text(f"{{{NODE}: {{count: 1, memoryMiB: 100, slots: 2}}}}")
    arguments = ("--fleet-file", str(fleet_file), "--publish-seconds", "3600", "--delivery", "device-plugin")
    sockets = ("--device-plugin-folder", str(folder), "--pod-resources-socket", str(folder / "resources.sock"))
    return lambda **variables: run_agent(*arguments, *sockets, "--device-plugin-resource", RESOURCE, **variables)


def create_pod(cluster: Layout, name: str, *, phase: str = "") -> None:
    """Create a pod that is bound to the node with the card."""
    allocation = Allocation(NODE, {"main": (CardShare(CARD, 0, 50, 300),)})
    metadata = {"name": name, "annotations": environment.annotations(allocation, "device-plugin")}
    spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]}
    api = client(cluster)
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=NAMESPACE)
    if phase:
        api.patch("pods", name, {"status": {"phase": phase}}, namespace=NAMESPACE, subresource="status")


async def reports(cluster: Layout, *, is_registered: bool) -> None:
    """Wait until the agent reports whether the kubelet knows it."""
    expected = {"mode": "device-plugin", "isRegistered": is_registered}
    await asyncio.to_thread(
        wait.until,
        lambda: published(cluster, NODE)["status"].get("delivery") == expected,
        what=f"delivery {expected}",
        timeout_s=PATIENCE_S,
    )


async def test_the_node_delivers_cards_while_the_kubelet_knows_the_agent(
    cluster: Layout, run: Callable[..., Any], folder: Path
) -> None:
    """Of the node's pods the one that has not finished says which card the kubelet gives; refusals are counted."""
    await asyncio.to_thread(namespaces.create, cluster, NAMESPACE)
    await asyncio.to_thread(create_pod, cluster, "finished", phase="Succeeded")
    agent = await asyncio.to_thread(run, NODE_NAME=NODE)
    await reports(cluster, is_registered=False)
    async with PlayedKubelet(folder).listening() as kubelet:
        devices = [*await kubelet.devices()]
        assert devices == [f"{CARD}::0", f"{CARD}::1"]
        await reports(cluster, is_registered=True)
        kubelet.held = {Container(NAMESPACE, name, "main"): [] for name in ("finished", "waits")}
        with pytest.raises(grpc.RpcError, match="no container on this node waits"):
            await kubelet.prefer(devices, 1)
        await asyncio.to_thread(create_pod, cluster, "waits")
        assert await kubelet.prefer(devices[1:], 1) == devices[1:]
        assert await kubelet.allocate(devices[1]) == [f"nvidia.com/gpu={CARD}"]
        _, metrics = await asyncio.to_thread(agent.http, "/metrics")
        assert "tranche_agent_refused_devices_total 1.0" in metrics
    await reports(cluster, is_registered=False)


async def test_a_container_with_devices_of_another_does_not_start(
    cluster: Layout, run: Callable[..., Any], folder: Path
) -> None:
    """Whatever the kubelet's answer at admission was based on: here it gave a card to a pod without an allocation."""
    await asyncio.to_thread(namespaces.create, cluster, NAMESPACE)
    await asyncio.to_thread(create_pod, cluster, "owner")
    await asyncio.to_thread(run, NODE_NAME=NODE)
    async with PlayedKubelet(folder).listening() as kubelet:
        own, other = await kubelet.devices()
        kubelet.held = {Container(NAMESPACE, "owner", "main"): [own], Container(NAMESPACE, "foreign", "main"): [other]}
        await kubelet.pre_start(own)
        with pytest.raises(grpc.RpcError, match=f"pod {NAMESPACE}/foreign has devices of {CARD}, and its allocation"):
            await kubelet.pre_start(other)


def test_an_agent_of_several_nodes_is_no_device_plugin(run: Callable[..., Any]) -> None:
    """A kubelet has one node; the message names the setting."""
    agent = run()
    assert agent.process.wait(PATIENCE_S) == 1
    assert "a kubelet serves one node: set agent.node_name" in agent.log
