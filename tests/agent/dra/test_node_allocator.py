"""One node between ledger and DRA, by what the API server says at each step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.dra.node_allocator import NodeAllocator
from agent.publishing.published_state import same
from agent.report import DeviceReport, NodeReport
from allocation.inventory import Card
from cluster.gpu_node_status import Status
from tests.agent.support.dra_node import NODE, PlayedNode, claim, result, running
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from agent.dra.node_view import NodeView

REPORT = NodeReport(NODE, (DeviceReport(Card("GPU-a", 0, 1000)), DeviceReport(Card("GPU-b", 1, 1000))))


class Agent:
    """The allocator of a node, and the agent that publishes what it says."""

    def __init__(self, node: PlayedNode, *, status: Status | None = None) -> None:
        self.now = 0.0
        self.node = node
        self.changes = 0
        self.allocator = NodeAllocator(
            cast("NodeView", node),
            node=NODE,
            on_change=self._changed,
            settle_seconds=10.0,
            clock=lambda: self.now,
            new_drain=lambda: f"drain-{self.changes}",
        )
        self.allocator.restore(status)
        self.allocator.set_node("node-uid", frozenset())

    def _changed(self) -> None:
        self.changes += 1

    async def step(self, seconds: float = 0.0) -> tuple[str, bool]:
        """Publish what is to be published, take a step, and return allocator and whether claims are prepared."""
        self.now += seconds
        self.allocator.set_published(self.allocator.with_allocator(REPORT))
        await self.allocator.advance()
        return self.allocator.allocator, self.allocator.serves


async def to_dra(agent: Agent) -> None:
    """Take a node of the ledger to DRA."""
    agent.allocator.set_wanted("dra")
    assert await agent.step() == ("draining", False)
    agent.node.confirmed = agent.allocator.with_allocator(REPORT).drain
    assert await agent.step() == ("dra", True)
    assert await agent.step() == ("dra", True)
    assert agent.node.present is not None


def devices(node: PlayedNode) -> dict[str, Any]:
    """Return the devices of the slice by name."""
    assert node.present is not None
    return {each["name"]: each for each in node.present["spec"]["devices"]}


async def test_slice_is_published_after_the_confirmation_of_this_drain() -> None:
    """An earlier one does not count, nor does one before the last pod has ended."""
    node = PlayedNode()
    agent = Agent(node)
    agent.allocator.set_wanted("dra")
    assert await agent.step() == ("draining", False)
    drain = agent.allocator.with_allocator(REPORT).drain
    assert drain == "drain-0"
    node.confirmed = "an earlier one"
    assert await agent.step() == ("draining", False)
    node.confirmed, node.pod = drain, "team/p"
    assert await agent.step() == ("draining", False)
    node.pod = ""
    assert await agent.step() == ("dra", True)
    assert node.present is None
    assert await agent.step() == ("dra", True)
    assert [*devices(node)] == ["gpu-0", "gpu-1"]


async def test_register_annotation_has_no_cards_of_another_allocator() -> None:
    """The ledger reads it where the status is gone for a moment, and HAMi's scheduler always."""
    agent = Agent(PlayedNode())
    assert agent.allocator.with_allocator(REPORT).registered == REPORT.inventory
    await to_dra(agent)
    assert agent.allocator.with_allocator(REPORT).registered.cards == ()
    assert agent.allocator.with_allocator(REPORT).inventory == REPORT.inventory


def test_allocator_that_another_client_changes_is_noticed() -> None:
    """The agent writes its own again."""
    assert same(Status(allocator="dra"), Status(allocator="dra"))
    assert not same(Status(allocator="dra"), Status(allocator="ledger"))
    assert not same(Status(allocator="draining", drain="a"), Status(allocator="draining", drain="b"))


async def test_nothing_happens_before_the_status_is_published() -> None:
    """The scheduler closes the node by it."""
    node = PlayedNode()
    agent = Agent(node)
    agent.allocator.set_wanted("dra")
    await agent.step()
    node.confirmed = agent.allocator.with_allocator(REPORT).drain
    for _ in range(3):
        await agent.allocator.advance()
    assert agent.allocator.allocator == "draining"
    assert await agent.step() == ("dra", True)
    for _ in range(3):
        await agent.allocator.advance()
    assert node.present is None


async def test_slice_follows_cards_and_cordon() -> None:
    """It is written when it differs, and again when the kubelet has deleted it."""
    node = PlayedNode()
    agent = Agent(node)
    await to_dra(agent)
    await agent.step()
    assert node.writes == ["write"]
    agent.allocator.set_node("node-uid", frozenset({"GPU-b"}))
    await agent.step()
    assert "taints" in devices(node)["gpu-1"]
    node.present = None
    await agent.step()
    assert node.writes == ["write"] * 3


async def test_slice_waits_for_its_node() -> None:
    """Without an owner it would stay when the node is deleted."""
    node = PlayedNode()
    agent = Agent(node, status=Status(allocator="dra"))
    agent.allocator.set_node("", frozenset())
    agent.allocator.set_wanted("dra")
    await agent.step()
    assert node.present is None


async def test_claims_end_before_the_ledger_returns() -> None:
    """Devices are closed, then claims end, then the slice goes; each time kube-scheduler has time to see it."""
    node = PlayedNode()
    agent = Agent(node)
    await to_dra(agent)
    node.all_claims["c"] = claim("c", result())
    agent.allocator.set_wanted("ledger")
    await agent.step()
    assert all(each["taints"][0]["key"] == "gpu.scheduling/draining" for each in devices(node).values())
    assert await agent.step(60.0) == ("dra", True)
    assert await agent.step(60.0) == ("dra", True)
    assert node.present is not None
    node.all_claims.clear()
    await agent.step()
    assert node.present is None
    assert await agent.step(9.0) == ("dra", True)
    assert await agent.step(9.0) == ("dra", True)
    assert await agent.step(1.0) == ("dra", False)
    node.all_claims["late"] = claim("late", result())
    assert await agent.step() == ("dra", True)
    node.all_claims.clear()
    assert await agent.step() == ("dra", False)
    assert await agent.step() == ("ledger", False)
    assert agent.allocator.with_allocator(REPORT).status().allocator == "ledger"


async def test_agent_that_restarts_goes_on() -> None:
    """In each state: a drain keeps its name, claims are prepared at once, and the ledger stays away."""
    node = PlayedNode()
    agent = Agent(node)
    await to_dra(agent)
    again = Agent(node, status=Status(allocator="dra"))
    assert again.allocator.serves
    again.allocator.set_wanted("dra")
    assert await again.step() == ("dra", True)
    assert node.writes == ["write"]
    draining = Agent(PlayedNode(), status=Status(allocator="draining", drain="d"))
    draining.allocator.set_wanted("dra")
    assert draining.allocator.with_allocator(REPORT).drain == "d"
    assert await draining.step() == ("draining", False)


async def test_agent_whose_setting_is_the_ledger_returns_a_node() -> None:
    """Also one that an administrator has switched off while claims have cards."""
    node = PlayedNode()
    agent = Agent(node)
    await to_dra(agent)
    other = Agent(node, status=Status(allocator="dra"))
    other.allocator.set_wanted("ledger")
    node.all_claims["c"] = claim("c", result())
    for _ in range(5):
        assert await other.step(60.0) == ("dra", True)


async def test_cluster_that_cannot_share_devices_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The node stays with the ledger, open."""
    node = PlayedNode()
    node.too_old = "allocator dra needs Kubernetes 1.36"
    agent = Agent(node)
    agent.allocator.set_wanted("dra")
    assert await agent.step() == ("ledger", False)
    assert agent.allocator.with_allocator(REPORT).status() == REPORT.status()
    assert agent.changes == 0
    assert "needs Kubernetes 1.36" in caplog.text


async def test_node_whose_wish_is_unknown_stays() -> None:
    """Its labels are read after its status: an agent that begins must not leave DRA meanwhile."""
    agent = Agent(PlayedNode(), status=Status(allocator="dra"))
    for _ in range(3):
        assert await agent.step(60.0) == ("dra", True)


async def test_errors_are_said_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The state stays as it is until the API server answers."""
    monkeypatch.setattr("agent.dra.node_allocator._RETRY_SECONDS", 0.01)
    node = PlayedNode()
    agent = Agent(node)
    agent.allocator.set_published(agent.allocator.with_allocator(REPORT))
    agent.allocator.set_wanted("dra")
    node.is_down = True
    async with running(agent.allocator.run()):
        await asyncio.sleep(0.1)
        assert agent.allocator.allocator == "ledger"
        assert caplog.text.count("no answer") == 1
        node.is_down = False
        async with asyncio.timeout(PATIENCE_S):
            while agent.allocator.allocator != "draining":  # noqa: ASYNC110 -- it is a task's affair
                await asyncio.sleep(0.01)
