"""The agent as the DRA plugin of a kubelet: registration, claims, refusals, and restarts between."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pytest

from agent.dra import plugin as module
from agent.dra.calls import Calls
from agent.dra.claim_files import ClaimFiles
from agent.dra.node_allocator import NodeAllocator
from agent.dra.plugin import DraPlugin
from agent.report import DeviceReport, NodeReport
from allocation.inventory import Card
from cluster.gpu_node_status import Status
from tests.agent.support.dra_node import NODE, PlayedKubelet, PlayedNode, claim, result, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from agent.dra.node_view import NodeView

HALF = {"memory": "40Gi", "cores": "50", "slots": "1"}


class Machine:
    """A node with two cards, whose agent may restart.

    Attributes:
        node: what the API server says.
        kubelet: the kubelet.
        endpoint: the socket of the plugin's calls.
        allocator: that of the agent which runs now.
    """

    def __init__(self, folder: Path) -> None:
        self.node = PlayedNode()
        self.kubelet = PlayedKubelet(folder / "registry")
        self.endpoint = folder / "plugin" / "dra.sock"
        self._folder = folder
        (folder / "registry").mkdir()
        self.allocator = self._allocator()

    def _allocator(self) -> NodeAllocator:
        made = NodeAllocator(cast("NodeView", self.node), node=NODE, on_change=lambda: None, settle_seconds=10.0)
        made.restore(Status(allocator="dra"))
        cards = (DeviceReport(Card("GPU-a", 0, 81920)), DeviceReport(Card("GPU-b", 1, 81920)))
        made.with_allocator(NodeReport(NODE, cards))
        return made

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        """Run an agent while the block runs, which begins with a node of DRA."""
        self.allocator = self._allocator()
        files = ClaimFiles(self._folder / "cdi")
        calls = Calls(NODE, cast("NodeView", self.node), allocator=self.allocator, files=files)
        plugin = DraPlugin(calls, folder=self._folder / "plugin", registrations=self._folder / "registry")
        async with running(plugin.run()):
            yield

    @property
    def files(self) -> list[str]:
        """The names of the CDI files."""
        return sorted(path.name for path in (self._folder / "cdi").glob("*"))

    def environment(self, uid: str) -> list[str]:
        """Return the environment of the only request of a claim."""
        content = json.loads((self._folder / "cdi" / f"gpu.scheduling-claim-{uid}.json").read_bytes())
        (device,) = content["devices"]
        found: list[str] = device["containerEdits"]["env"]
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A node whose folders have paths that fit into those of sockets; a pause that a test need not wait for."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.02)
    with TemporaryDirectory(prefix="dra-") as path:
        yield Machine(Path(path))


async def test_it_registers_as_the_driver_of_our_class(machine: Machine) -> None:
    """With the version of the kubelet's API that it speaks, and the socket of its calls."""
    async with machine.agent():
        info = await machine.kubelet.register()
        assert (info.type, info.name, [*info.supported_versions]) == ("DRAPlugin", "gpu.scheduling", ["v1.DRAPlugin"])
        assert info.endpoint == str(machine.endpoint)


async def test_a_claim_gets_its_devices_until_its_pod_ends(machine: Machine) -> None:
    """As often as the kubelet asks; the answer names request, pool, device, share and CDI devices."""
    machine.node.all_claims["c"] = claim("c", result(consumedCapacity=HALF, shareID="s"))
    async with machine.agent():
        for _ in range(2):
            answers = await machine.kubelet.prepare("c")
            (device,) = answers["uid-c"].devices
            assert not answers["uid-c"].error
            assert [*device.request_names] == ["gpu"]
            assert (device.pool_name, device.device_name, device.share_id) == (NODE, "gpu-0", "s")
            assert [*device.cdi_device_ids] == ["nvidia.com/gpu=GPU-a", "gpu.scheduling/claim=uid-c-gpu"]
            assert "CUDA_DEVICE_MEMORY_LIMIT_0=40960m" in machine.environment("uid-c")
        for _ in range(2):
            assert await machine.kubelet.unprepare("c") == {"uid-c": ""}
            assert machine.files == []


async def test_it_restarts_between_prepare_and_unprepare(machine: Machine) -> None:
    """The file stays for containers that restart; what belongs to claims that have ended goes at the start."""
    machine.node.all_claims["c"] = claim("c", result(consumedCapacity=HALF))
    machine.node.all_claims["d"] = claim("d", result(device="gpu-1", consumedCapacity=HALF))
    async with machine.agent():
        answers = await machine.kubelet.prepare("c", "d")
        assert [each.error for each in answers.values()] == ["", ""]
    del machine.node.all_claims["d"]
    async with machine.agent():
        await machine.kubelet.register()
        assert machine.files == ["gpu.scheduling-claim-uid-c.json"]
        again = await machine.kubelet.prepare("c")
        assert not again["uid-c"].error
        assert await machine.kubelet.unprepare("c", "d") == {"uid-c": "", "uid-d": ""}
        assert machine.files == []


async def test_a_node_of_the_ledger_hands_out_nothing(machine: Machine) -> None:
    """Whatever a stale slice has made kube-scheduler allocate; the kubelet shows the reason in an event."""
    machine.node.all_claims["c"] = claim("c", result(consumedCapacity=HALF))
    async with machine.agent():
        machine.allocator.serves = False
        answers = await machine.kubelet.prepare("c")
        assert "node n1 does not give its cards to claims now" in answers["uid-c"].error
        machine.allocator.serves = True
        machine.node.pod = "team/p"
        answers = await machine.kubelet.prepare("c")
        assert "pod team/p has cards of node n1 by Tranche's ledger" in answers["uid-c"].error
        assert machine.files == []
        machine.node.pod = ""
        answers = await machine.kubelet.prepare("c")
        assert not answers["uid-c"].error


async def test_each_claim_is_answered_by_itself(machine: Machine) -> None:
    """One that was deleted and made again, one without cards here, one whose card is gone, and one that is well."""
    machine.node.all_claims |= {
        "again": claim("again", result(), uid="another"),
        "none": claim("none"),
        "gone": claim("gone", result(device="gpu-5")),
        "well": claim("well", result()),
    }
    async with machine.agent():
        answers = await machine.kubelet.prepare("again", "none", "gone", "well", "unknown")
    assert "another one has its name" in answers["uid-again"].error
    assert "no card of node n1 is allocated to the claim" in answers["uid-none"].error
    assert "the node has no card gpu-5" in answers["uid-gone"].error
    assert "not found" in answers["uid-unknown"].error
    assert not answers["uid-well"].error
    assert machine.files == ["gpu.scheduling-claim-uid-well.json"]


async def test_without_the_api_server_nothing_is_given(machine: Machine) -> None:
    """Pods that end are still cleaned up."""
    machine.node.all_claims["c"] = claim("c", result())
    async with machine.agent():
        await machine.kubelet.prepare("c")
        machine.node.is_down = True
        answers = await machine.kubelet.prepare("c")
        assert "no answer" in answers["uid-c"].error
        assert await machine.kubelet.unprepare("c") == {"uid-c": ""}


async def test_it_serves_again_when_its_socket_is_gone(machine: Machine) -> None:
    """A kubelet that begins, or its administrator, may clear the folder."""
    async with machine.agent():
        await machine.kubelet.register()
        machine.kubelet.socket.unlink()
        await machine.kubelet.register()


async def test_a_kubelet_that_refuses_is_said(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """Such as one that is too old for the version of the API."""
    async with machine.agent():
        await machine.kubelet.register(error="no version in common")
    assert "the kubelet does not accept the plugin: no version in common" in caplog.text
