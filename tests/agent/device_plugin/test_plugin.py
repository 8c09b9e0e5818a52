"""The agent's device plugin and a kubelet: devices, choices, refusals, and restarts of either."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import grpc
import pytest

from agent.device_plugin import plugin as module
from agent.device_plugin.matching import Allocated, Container, Held
from agent.device_plugin.plugin import DevicePlugin
from agent.report import DeviceReport, NodeReport
from allocation.inventory import Card
from cluster.errors import UnreachableError
from tests.agent.support.played_kubelet import RESOURCE, PlayedKubelet
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

MAIN, OTHER = Container("team", "p", "main"), Container("team", "q", "main")


def report(*cards: Card) -> NodeReport:
    """Return the agent's report of a node."""
    return NodeReport("n1", tuple(DeviceReport(card) for card in cards))


ONE = report(Card("GPU-a", 0, 1000, slots=2))
TWO = report(Card("GPU-a", 0, 1000, slots=1), Card("GPU-b", 1, 1000, slots=1))


class View:
    """A node whose containers a test sets."""

    def __init__(self) -> None:
        self.held_devices: Held = {MAIN: []}
        self.cards: Allocated = {MAIN: ("GPU-b",)}
        self.error: Exception | None = None

    async def held(self) -> Held:
        """Return what the kubelet would list."""
        return self.held_devices

    async def allocated(self) -> Allocated:
        """Return what the API server would say."""
        if self.error is not None:
            raise self.error
        return self.cards


class Running:
    """A plugin that runs, and what it has reported."""

    def __init__(self, folder: Path) -> None:
        self.view = View()
        self.changed = asyncio.Event()
        self.refusals = 0
        self.plugin = DevicePlugin(
            folder, self.view, resource=RESOURCE, on_change=self.changed.set, on_refused=self._refused
        )

    def _refused(self) -> None:
        self.refusals += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after a change."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.changed.wait()
                self.changed.clear()


@asynccontextmanager
async def running(folder: Path, reported: NodeReport | None = ONE) -> AsyncIterator[Running]:
    """Run a plugin for the block, after a report unless it is None."""
    made = Running(folder)
    if reported is not None:
        made.plugin.set_report(reported)
    task = asyncio.create_task(made.plugin.run())
    try:
        yield made
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not made.plugin.is_registered


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose path fits into that of a socket; a pause that a test need not wait for."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.02)
    with TemporaryDirectory(prefix="kubelet-") as path:
        yield Path(path)


async def test_it_registers_and_tells_the_devices_of_the_cards(folder: Path) -> None:
    """The kubelet is to ask for its choice and before each start; it hears of each change, and of nothing else."""
    async with PlayedKubelet(folder).listening() as kubelet, running(folder) as own:
        request = await kubelet.registrations.get()
        assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
        assert await kubelet.devices() == {"GPU-a::0": "Healthy", "GPU-a::1": "Healthy"}
        await own.until(lambda: own.plugin.is_registered)
        options = await kubelet.options()
        assert options.pre_start_required
        assert options.get_preferred_allocation_available
        own.plugin.set_report(ONE)
        own.plugin.set_report(report(Card("GPU-a", 0, 1000, slots=1, healthy=False)))
        assert await kubelet.devices() == {"GPU-a::0": "Unhealthy"}


async def test_it_registers_with_its_devices(folder: Path) -> None:
    """The kubelet would take an empty list for the end of all devices, such as those of pods that run."""
    async with PlayedKubelet(folder).listening() as kubelet, running(folder, None) as own:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kubelet.registrations.get(), 0.1)
        own.plugin.set_report(ONE)
        assert await kubelet.devices() == {"GPU-a::0": "Healthy", "GPU-a::1": "Healthy"}


async def test_a_container_gets_the_devices_of_its_allocation(folder: Path) -> None:
    """From the kubelet's question to the start of the container, by the names of the node's CDI specification."""
    async with PlayedKubelet(folder).listening() as kubelet, running(folder, TWO) as own:
        await kubelet.devices()
        assert await kubelet.prefer(["GPU-a::0", "GPU-b::0"], 1) == ["GPU-b::0"]
        assert await kubelet.allocate("GPU-b::0") == ["nvidia.com/gpu=GPU-b"]
        own.view.held_devices = {MAIN: ["GPU-b::0"]}
        await kubelet.pre_start("GPU-b::0")
        assert own.refusals == 0


async def test_refusals_reach_the_kubelet_with_their_reason(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It shows them in the pod's status; the log has them, too, and they are counted."""
    async with PlayedKubelet(folder).listening() as kubelet, running(folder, TWO) as own:
        await kubelet.devices()
        with pytest.raises(grpc.RpcError, match="the kubelet chose devices of GPU-a"):
            await kubelet.allocate("GPU-a::0")
        own.view.held_devices = {MAIN: ["GPU-a::0"]}
        with pytest.raises(grpc.RpcError, match=r"pod team/p has devices of GPU-a, and its allocation has GPU-b"):
            await kubelet.pre_start("GPU-a::0")
        own.view.held_devices = {OTHER: []}
        with pytest.raises(grpc.RpcError, match="a pod was not placed by Tranche's scheduler") as refused:
            await kubelet.prefer(["GPU-a::0", "GPU-b::0"], 1)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]  # of aio
        assert own.refusals == 3
    assert "GetPreferredAllocation refused: no container on this node waits" in caplog.text


async def test_without_the_api_server_nothing_is_given(folder: Path) -> None:
    """No other source says which cards a pod has."""
    async with PlayedKubelet(folder).listening() as kubelet, running(folder, TWO) as own:
        await kubelet.devices()
        own.view.error = UnreachableError("GET /api/v1/pods: no answer")
        for call in (kubelet.prefer(["GPU-b::0"], 1), kubelet.allocate("GPU-b::0"), kubelet.pre_start("GPU-b::0")):
            with pytest.raises(grpc.RpcError, match="GET /api/v1/pods: no answer") as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_gone_for_a_while", [True, False])
async def test_it_registers_again_with_a_kubelet_that_has_restarted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_gone_for_a_while: bool
) -> None:
    """A new kubelet has another socket, and has removed the plugin's; meanwhile the node delivers no cards."""
    monkeypatch.setattr(module, "_SILENT_PAUSES", 10**6)
    async with running(folder) as own:
        for _ in range(2):
            async with PlayedKubelet(folder).listening() as kubelet:
                await kubelet.devices()
                await own.until(lambda: own.plugin.is_registered)
            if is_gone_for_a_while:
                await own.until(lambda: not own.plugin.is_registered)
                await asyncio.sleep(3 * module._PAUSE_SECONDS)


async def test_a_restarted_agent_takes_the_place_of_the_last_one(folder: Path) -> None:
    """Its socket may have been left behind."""
    async with PlayedKubelet(folder).listening() as kubelet:
        for _ in range(2):
            async with running(folder):
                await kubelet.devices()
            (folder / "tranche.sock").touch()


async def test_it_registers_again_with_a_kubelet_that_does_not_watch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its devices would never be advertised."""
    monkeypatch.setattr(module, "_SILENT_PAUSES", 2)
    async with PlayedKubelet(folder, watches=False).listening() as kubelet, running(folder):
        for _ in range(2):
            await asyncio.wait_for(kubelet.registrations.get(), PATIENCE_S)


def of_kubelet(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged about the kubelet's socket."""
    return [each.getMessage() for each in caplog.records if "kubelet.sock" in each.getMessage()]


async def test_a_missing_or_refusing_kubelet_is_said_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason, and is not filled; the plugin goes on trying."""
    caplog.set_level(logging.INFO)
    async with running(folder) as own:
        await asyncio.sleep(0.1)
        async with PlayedKubelet(folder, refuses="no plugins here").listening():
            await asyncio.sleep(0.2)
        assert not own.plugin.is_registered
        async with PlayedKubelet(folder).listening() as kubelet:
            await kubelet.devices()
            async with asyncio.timeout(PATIENCE_S):
                while not (said := of_kubelet(caplog)) or not said[-1].endswith("recovered"):  # noqa: ASYNC110 -- a log has no event
                    await asyncio.sleep(0.01)
    assert "No such file" in said[0]
    assert len(said) <= 5, "each reason, and that its socket is gone after the kubelet that refused, and as it ended"
    assert sum("the kubelet does not accept the device plugin: no plugins here" in each for each in said) == 1
