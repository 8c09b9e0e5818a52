"""The agent as a process that is a plugin of its node's container runtime, and what the API server learns of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.nri.messages_pb2 import Container, Pod
from allocation.allocation import Allocation, CardShare
from allocation.wire import environment
from lab import wait
from tests.agent.support.cluster_view import published
from tests.agent.support.played_runtime import PlayedRuntime
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
NODE = "plugin-1"
RUNNING = 3
ALLOCATION = Allocation(NODE, {"main": (CardShare("GPU-a", 0, 3000, 300),)})


def pod() -> tuple[Pod, Container]:
    """Return a pod that was bound to the node, and a container of it that runs without its cards."""
    made = Pod(id="s", name="p", namespace="a", annotations=environment.annotations(ALLOCATION, "nri"))
    of_image = ["GPU_CORE_UTILIZATION_POLICY=disable"]
    return made, Container(id="c", pod_sandbox_id="s", name="main", state=RUNNING, env=of_image)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where the agent finds its container runtime."""
    return tmp_path / "nri.sock"


@pytest.fixture
def start(
    add_node: Callable[[str], None], run_agent: Callable[..., Any], fleet_file: Path, socket: Path
) -> Callable[[], Any]:
    """A function that starts an agent of the node as a plugin."""
    add_node(NODE)
    fleet_file.write_text(f"{{{NODE}: {{count: 1, memoryMiB: 100}}}}")
    arguments = ("--fleet-file", str(fleet_file), "--delivery", "nri", "--nri-socket", str(socket))
    arguments += ("--allocation-core-policy", "force")

    return lambda: run_agent(*arguments, "--publish-seconds", "3600", NODE_NAME=NODE)


async def test_the_node_delivers_cards_while_the_agent_is_registered(
    cluster: Layout, start: Callable[[], Any], socket: Path
) -> None:
    """The report follows the registration at once, in both directions; undelivered containers are counted."""

    def delivery_is(content: dict[str, Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            None,
            lambda: wait.until(
                lambda: published(cluster, NODE)["status"].get("delivery") == content,
                what=f"delivery {content}",
                timeout_s=PATIENCE_S,
            ),
        )

    agent = start()
    await delivery_is({"mode": "nri", "isRegistered": False})
    async with PlayedRuntime().listening(socket) as runtime:
        side = await runtime.plugin()
        await side.configure()
        made, container = pod()
        await side.synchronize([made], [container])
        await delivery_is({"mode": "nri", "isRegistered": True})
        adjust = (await side.create(made, container)).adjust
        assert adjust.cdi_devices
        assert [(each.key, each.value) for each in adjust.env] == [("GPU_CORE_UTILIZATION_POLICY", "force")]
        _, metrics = await asyncio.to_thread(agent.http, "/metrics")
        assert "tranche_agent_undelivered_containers 1.0" in metrics
    await delivery_is({"mode": "nri", "isRegistered": False})
