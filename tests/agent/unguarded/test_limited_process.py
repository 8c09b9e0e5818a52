"""The agent as a process that has the driver limit containers, by what the API server says of their pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agent.nri.messages_pb2 import Container, Pod
from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.wire import environment, record
from lab import wait
from lab.client import client
from tests.agent.support.played_runtime import PlayedRuntime
from tests.nvml.stub import Hardware, StubCard
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
NODE = "limited-1"
RUNNING = 3
ALLOCATION = Allocation(NODE, {"main": (CardShare("GPU-a", 0, 3000, 300),)})


def rights_of_the_component() -> Iterator[dict[str, Any]]:
    """Yield what manifests/memory-limits permits an agent, for the lab's."""
    text = (ROOT / "manifests" / "memory-limits" / "rbac.yaml").read_text(encoding="utf-8")
    role, binding = yaml.safe_load_all(text)
    yield role
    binding["subjects"] = [{"kind": "ServiceAccount", "namespace": "tranche-lab", "name": "fleet-agent"}]
    yield binding


def create_pod(cluster: Layout) -> dict[str, Any]:
    """Create a pod that is bound to the node, and return it."""
    metadata = {"name": "limited", "annotations": {names.ALLOCATION: record.encode(ALLOCATION)}}
    spec = {
        "nodeName": NODE,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none"}],
    }
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    client(cluster).create(made, namespace="default")
    return client(cluster).get("pod", "limited", namespace="default")


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where the agent finds its container runtime."""
    return tmp_path / "nri.sock"


@pytest.fixture
def set_limits(hardware: Hardware) -> Path:
    """The limits that the driver of the node's card was asked for, a line each."""
    hardware.has(StubCard("GPU-a"))
    return hardware.path.with_name(f"{hardware.path.name}.limits")


@pytest.fixture
def start(
    add_node: Callable[[str], None], run_agent: Callable[..., Any], fleet_file: Path, socket: Path, nvml_library: Path
) -> Callable[[], Any]:
    """A function that starts the agent."""
    add_node(NODE)
    fleet_file.write_text(f"{{{NODE}: {{count: 1, memoryMiB: 100}}}}")
    as_plugin = ("--fleet-file", str(fleet_file), "--delivery", "nri", "--nri-socket", str(socket))
    arguments = (*as_plugin, "--publish-seconds", "3600", "--memory-limits", "agent")
    return lambda: run_agent(*arguments, NODE_NAME=NODE, LD_LIBRARY_PATH=str(nvml_library.parent))


async def test_a_limit_follows_the_pod_and_not_only_the_runtime(
    cluster: Layout, set_limits: Path, start: Callable[[], Any], socket: Path
) -> None:
    """The driver limits a container before it starts, and to its new size as soon as the API server has it."""
    for right in rights_of_the_component():
        client(cluster).apply(right)
    start()
    bound = await asyncio.to_thread(create_pod, cluster)
    uid, identity = bound["metadata"]["uid"], "0" * 64
    annotations = {**environment.annotations(ALLOCATION, "nri", isolation=Isolation.CUDA), names.ISOLATION: "cuda"}
    made = Pod(id="s", uid=uid, name="limited", namespace="default", annotations=annotations)
    container = Container(id=identity, pod_sandbox_id="s", name="main", state=RUNNING)
    container.linux.cgroups_path = f"/kubepods/pod{uid}/{identity}"
    async with PlayedRuntime().listening(socket) as runtime:
        side = await runtime.plugin()
        await side.ready()
        await side.start(made, container)
        cgroup = f"GPU-a /sys/fs/cgroup{container.linux.cgroups_path}"
        assert (await asyncio.to_thread(set_limits.read_text)).splitlines() == [f"{cgroup} 3000 3000"]
        resized = {names.ALLOCATION: record.encode(Allocation(NODE, {"main": (CardShare("GPU-a", 0, 4000, 300),)}))}
        patch = {"metadata": {"annotations": resized}}
        await asyncio.to_thread(client(cluster).patch, "pod", "limited", patch, namespace="default")
        await asyncio.to_thread(
            lambda: wait.until(
                lambda: set_limits.read_text().splitlines() == [f"{cgroup} 3000 3000", f"{cgroup} 4000 4000"],
                what="the new limit",
                timeout_s=PATIENCE_S,
            )
        )
