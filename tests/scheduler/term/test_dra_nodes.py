"""A term and nodes that go to DRA and come back, as the process builds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.extender import wire
from tests.scheduler.support import builders as pods
from tests.scheduler.support import extending
from tests.scheduler.support.memory_api import refusing
from tests.scheduler.support.terms import TOKEN, Cluster, leading

if TYPE_CHECKING:
    from cluster.gpu_node_status import Allocator

SLICE = {"metadata": {"name": "gpu.scheduling-n0"}, "spec": {"driver": "gpu.scheduling", "nodeName": "n0"}}


def report(cluster: Cluster, allocator: Allocator, **more: Any) -> None:
    """Let the agent report an allocator."""
    shown = cluster.api.get_object("gpunodestatuses", "n0")
    content = {key: value for key, value in shown["status"].items() if key != "drain"}
    cluster.api.put("gpunodestatuses", {**shown, "status": {**content, "allocator": allocator, **more}})


def confirmed(cluster: Cluster) -> dict[str, str]:
    """Return what is confirmed of the node."""
    found: dict[str, str] = cluster.api.get_object("gpunodestatuses", "n0").get("spec", {}).get("drained", {})
    return found


async def test_drained_node_is_confirmed_with_the_leaders_token(cluster: Cluster) -> None:
    """When the last pod with an allocation has ended, for this drain; the node takes none meanwhile."""
    cluster.pod("p")
    async with leading(cluster):
        await cluster.placed("p")
        report(cluster, "draining", drain="d1")
        cluster.pod("q")
        await cluster.waits("q", "handed over to DRA")
        await asyncio.sleep(0.05)
        assert confirmed(cluster) == {}
        cluster.end("p")
        await cluster.until(lambda: confirmed(cluster) == {"drain": "d1", "leader": TOKEN}, "confirmation")
        report(cluster, "draining", drain="d2")
        await cluster.until(lambda: confirmed(cluster) == {"drain": "d2", "leader": TOKEN}, "confirmation")
        await cluster.waits("q", "handed over to DRA")


async def test_node_is_confirmed_again_by_another_leader(cluster: Cluster) -> None:
    """The agent does not accept the token of an earlier one."""
    report(cluster, "draining", drain="d1")
    shown = cluster.api.get_object("gpunodestatuses", "n0")
    cluster.api.put("gpunodestatuses", {**shown, "spec": {"drained": {"drain": "d1", "leader": "6/other"}}})
    async with leading(cluster):
        await cluster.until(lambda: confirmed(cluster) == {"drain": "d1", "leader": TOKEN}, "confirmation")


async def test_pod_that_is_being_bound_keeps_a_node_from_being_confirmed(cluster: Cluster) -> None:
    """Its Binding may still take effect, however long that takes."""
    cluster.pod("p")
    cluster.api.held["/binding"] = asyncio.Event()
    async with leading(cluster):
        state = cluster.term.state
        await cluster.until(lambda: any(state.ledger.reservations("n0")), "reservation")
        report(cluster, "draining", drain="d1")
        await cluster.until(lambda: state.node_allocators.drains, "drain")
        await asyncio.sleep(0.05)
        assert confirmed(cluster) == {}
        cluster.api.held["/binding"].set()
        await cluster.placed("p")
        cluster.end("p")
        await cluster.until(lambda: confirmed(cluster) == {"drain": "d1", "leader": TOKEN}, "confirmation")


async def test_node_opens_when_its_slice_is_gone(cluster: Cluster) -> None:
    """It is looked for at that moment: no watch says that it is gone."""
    cluster.api.put("resourceslices", SLICE)
    report(cluster, "dra")
    cluster.pod("p")
    async with leading(cluster):
        await cluster.waits("p", "DeviceClass gpu.scheduling")
        report(cluster, "ledger")
        allocators = cluster.term.state.node_allocators
        await cluster.until(lambda: allocators.returning == {"n0"}, "report")
        await asyncio.sleep(0.05)
        assert allocators.returning == {"n0"}
        assert not cluster.shown("p")["spec"].get("nodeName")
        cluster.api.remove("resourceslices", SLICE["metadata"]["name"])
        await cluster.placed("p")


async def test_confirmation_that_fails_is_written_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason once."""
    cluster.api.on_write = refusing("/gpunodestatuses/")
    report(cluster, "draining", drain="d1")
    async with leading(cluster):
        await cluster.until(lambda: "that it is drained was not written" in caplog.text, "log")
        cluster.api.on_write = lambda _method, _path: None
        await cluster.until(lambda: confirmed(cluster) == {"drain": "d1", "leader": TOKEN}, "confirmation")


async def test_extender_refuses_a_node_that_drains(cluster: Cluster) -> None:
    """At `/filter`, and at `/bind` for a pod that was filtered before."""
    cluster.pod("p")
    async with leading(cluster, extender=True):
        assert cluster.term.extender is not None
        report(cluster, "draining", drain="d1")
        await cluster.until(lambda: cluster.term.state.node_allocators.drains, "drain")
        body = msgspec.json.encode({"Pod": cluster.shown("p"), "Nodes": None, "NodeNames": ("n0",)})
        answer = msgspec.json.decode(wire.encode(await cluster.term.extender.filter(wire.decode_args(body))))
        assert not answer.get("NodeNames")
        refusal = await extending.bound(cluster.term.extender, pods.pod("p"), "n0")
        assert "NodeDraining" in refusal
