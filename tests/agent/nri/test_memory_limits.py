"""The driver's limits follow the allocations of the containers that run, whatever happens to the agent meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from agent.nri import memory_limits as module
from agent.nri.memory_limits import Limited, LimitError, MemoryLimits, cgroup_of
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from allocation.allocation import Allocation, CardShare
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

UID = "01234567-89ab-cdef-0123-456789abcdef"
ID = "0f" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
SLICES = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice"
MAIN = Limited(UID, "pod a/p: container main", "main", "/sys/fs/cgroup/main")


def allocation(*mib: int) -> Allocation:
    """Return an allocation of container `main` with so much of each card."""
    return Allocation("n1", {"main": tuple(CardShare(f"GPU-{at}", at, each, 300) for at, each in enumerate(mib))})


class Driver:
    """The driver, as it is asked for limits."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Limit]]] = []
        self.error = ""
        self.answers = threading.Event()
        self.answers.set()
        self._called = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def apply(self, cgroup: str, limits: module.Limits) -> None:
        """Note what is asked for; fail if it has an error."""
        self.answers.wait(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._called.set)
        if self.error:
            raise NvmlError(self.error)
        self.asked.append((cgroup, dict(limits)))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after a call."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._called.wait()
                self._called.clear()
                await asyncio.sleep(0)


@pytest.fixture
async def driver() -> Driver:
    """A driver that can limit."""
    return Driver()


@asynccontextmanager
async def running(driver: Driver) -> AsyncIterator[MemoryLimits]:
    """Keep the limits for the block."""
    limits = MemoryLimits(driver.apply)
    task = asyncio.create_task(limits.run())
    try:
        yield limits
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_container_is_limited_before_it_runs(driver: Driver) -> None:
    """Each card to its own share, which NVIDIA's toolkit cannot."""
    limits = MemoryLimits(driver.apply)
    await limits.start(ID, MAIN, allocation(3000, 5000))
    assert driver.asked == [(MAIN.cgroup, {"GPU-0": Limit(3000, 3000), "GPU-1": Limit(5000, 5000)})]


async def test_a_container_may_use_up_to_its_limit(driver: Driver) -> None:
    """Beyond what is reserved for it, the driver may take memory back."""
    share = CardShare("GPU-0", 0, 3000, 300).up_to(8000, 300)
    await MemoryLimits(driver.apply).start(ID, MAIN, Allocation("n1", {"main": (share,)}))
    assert driver.asked == [(MAIN.cgroup, {"GPU-0": Limit(3000, 8000)})]


async def test_a_container_that_the_driver_does_not_limit_does_not_run(driver: Driver) -> None:
    """The reason is the driver's."""
    driver.error = "nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions"
    with pytest.raises(LimitError, match="does not set the memory limit: nvmlDeviceSet.*: Insufficient Permissions"):
        await MemoryLimits(driver.apply).start(ID, MAIN, allocation(3000))


async def test_a_driver_that_hangs_keeps_the_container_from_running(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime drops a plugin that does not respond, and its containers would run without limits."""
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.05)
    driver.answers.clear()
    with pytest.raises(LimitError, match=r"has not set the memory limit within 0\.05 s"):
        await MemoryLimits(driver.apply).start(ID, MAIN, allocation(3000))
    driver.answers.set()


@pytest.mark.parametrize("mib", [2000, 4000])
async def test_a_resize_takes_effect_at_once(driver: Driver, mib: int) -> None:
    """The container is not started again, and other pods' allocations change nothing."""
    async with running(driver) as limits:
        await limits.start(ID, MAIN, allocation(3000))
        limits.allocate("another", allocation(1))
        limits.allocate(UID, allocation(mib))
        await driver.until(lambda: len(driver.asked) > 1)
    assert driver.asked == [(MAIN.cgroup, {"GPU-0": Limit(3000, 3000)}), (MAIN.cgroup, {"GPU-0": Limit(mib, mib)})]


async def test_a_limit_that_is_in_force_is_not_set_again(driver: Driver) -> None:
    """Each change of a pod on the node reaches the agent, and most are of something else."""
    limits = MemoryLimits(driver.apply)
    await limits.start(ID, MAIN, allocation(3000))
    limits.allocate(UID, allocation(3000))
    await limits.start(ID, MAIN, allocation(3000))
    assert len(driver.asked) == 1


async def test_a_container_that_starts_again_has_the_present_size(driver: Driver) -> None:
    """The runtime knows the allocation as it was when the sandbox was created."""
    limits = MemoryLimits(driver.apply)
    limits.allocate(UID, allocation(4000))
    await limits.start(ID, MAIN, allocation(3000))
    assert driver.asked == [(MAIN.cgroup, {"GPU-0": Limit(4000, 4000)})]


async def test_another_agent_limits_what_runs_already(driver: Driver) -> None:
    """Its predecessor may have ended before a container had its limit, or before a resize."""
    async with running(driver) as limits:
        limits.running({ID: (MAIN, allocation(3000))})
        await driver.until(lambda: bool(driver.asked))
    assert driver.asked == [(MAIN.cgroup, {"GPU-0": Limit(3000, 3000)})]


async def test_a_container_that_ended_while_the_runtime_was_away_is_forgotten(driver: Driver) -> None:
    """Its control group is gone, and the driver would refuse its resize for ever."""
    limits = MemoryLimits(driver.apply)
    await limits.start(ID, MAIN, allocation(3000))
    limits.running({})
    assert (limits._containers, limits._bound, limits._applied) == ({}, {}, {})


async def test_a_container_without_a_known_control_group_does_not_run(driver: Driver) -> None:
    """Another runtime may name it in another way."""
    with pytest.raises(LimitError, match="its control group does not have the name"):
        await MemoryLimits(driver.apply).start(ID, Limited(UID, "a/p", "main", ""), allocation(3000))
    assert driver.asked == []


async def test_a_limit_that_failed_is_tried_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And reported once."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    driver.error = "nvmlDeviceSetMemoryLimits_v1: Unknown Error"
    async with running(driver) as limits:
        limits.running({ID: (MAIN, allocation(3000))})
        for _ in range(3):
            driver._called.clear()
            await asyncio.wait_for(driver._called.wait(), PATIENCE_S)
        driver.error = ""
        await driver.until(lambda: bool(driver.asked))
    messages = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert messages == [
        "pod a/p: container main: its memory limit is not set: nvmlDeviceSetMemoryLimits_v1: Unknown Error"
    ]


async def test_a_problem_ends_with_its_container(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node starts containers for years; one that ended while the driver refused it is not a problem."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    driver.error = "nvmlDeviceSetMemoryLimits_v1: Unknown Error"
    async with running(driver) as limits:
        limits.running({ID: (MAIN, allocation(3000))})
        await driver.until(lambda: bool(limits._problems._problems))
        driver.answers.clear()
        async with asyncio.timeout(PATIENCE_S):
            while not limits._one_at_a_time.locked():  # noqa: ASYNC110 -- until the driver is asked again
                await asyncio.sleep(0.001)
        limits.forget(ID)
        driver._called.clear()
        driver.answers.set()
        await driver.until(lambda: not limits._one_at_a_time.locked())
    assert limits._problems._problems == {}


async def test_nothing_is_kept_of_a_container_that_was_removed(driver: Driver) -> None:
    """The driver forgets the limit with the control group; a later resize of the pod asks for nothing."""
    async with running(driver) as limits:
        await limits.start(ID, MAIN, allocation(3000))
        limits.forget(ID)
        limits.allocate(UID, allocation(4000))
        limits.allocate(UID, None)
        other = Limited("other", "b/q", "main", "/sys/fs/cgroup/other")
        await limits.start("1f" * 32, other, allocation(1000))
    assert [cgroup for cgroup, _ in driver.asked] == [MAIN.cgroup, other.cgroup]
    assert (limits._bound.keys(), limits._present, limits._applied.keys()) == ({"other"}, {}, {"1f" * 32})


@pytest.mark.parametrize(
    ("path", "cgroup"),
    [
        (f"{SLICE}:cri-containerd:{ID}", f"{SLICES}/{SLICE}/cri-containerd-{ID}.scope"),
        (f"/kubepods/burstable/pod{UID}/{ID}", f"/sys/fs/cgroup/kubepods/burstable/pod{UID}/{ID}"),
        (f"/lab/kubepods/pod{UID}/{ID}", f"/sys/fs/cgroup/lab/kubepods/pod{UID}/{ID}"),
        ("/system.slice/other", ""),
        ("", ""),
    ],
)
def test_the_control_group_is_where_the_runtime_creates_it(path: str, cgroup: str) -> None:
    """By either of the kubelet's drivers, as the runtime's specification writes it."""
    assert cgroup_of(path) == cgroup
