"""The loop schedules further pods while others wait for the lock of their node, or for their volumes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from scheduler.binding.binder import Result
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from scheduler.volumes.bindings import ClaimKey, VolumeBindings
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.gang_loop import loop_of
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from allocation.steps import Steps
    from scheduler.cycle.result import ScheduleResult
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


class StuckNode:
    """A binder whose node n1 stays locked."""

    def __init__(self) -> None:
        self.bound: asyncio.Queue[str] = asyncio.Queue()

    def needs_lock(self, chosen: Scheduled) -> bool:
        """Whether the pod was scheduled to the locked node."""
        return chosen.node == "n1"

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result:
        """Bind at once, or never."""
        if self.needs_lock(chosen):
            await asyncio.Event().wait()
        self.bound.put_nowait(pod.metadata.name)
        return Result(Outcome.BOUND)


class AnyNode(StuckNode):
    """A binder of which no node is locked."""

    def needs_lock(self, _: Scheduled) -> bool:
        """Return False."""
        return False


class StuckVolumes:
    """A volume binder on whose node n1 no volume is ever provisioned."""

    async def bind(self, _: Pod, chosen: Scheduled) -> Result | None:
        """Return at once for a pod without unbound claims, or never."""
        if chosen.volumes:
            await asyncio.Event().wait()
        return None


class Cycle(SchedulingCycle):
    """A cycle in which every pod on node n1 has an unbound claim."""

    def schedule(self, pod: Pod, *, explain: bool = True) -> Steps[ScheduleResult | None]:
        """Schedule a pod."""
        result = yield from super().schedule(pod, explain=explain)
        if isinstance(result, Scheduled) and result.node == "n1":
            claims = VolumeBindings(provisioned=(ClaimKey("default", "data"),))
            return msgspec.structs.replace(result, volumes=claims)
        return result


async def bound_on_n2(made: ClusterState, cycle: SchedulingCycle, binder: StuckNode) -> list[str]:
    """Schedule three pods to n1 and three to n2, with one write at a time; return those that are bound on n2."""
    loop = loop_of(made, cycle, binder, volumes=StuckVolumes())
    running = asyncio.create_task(loop.run())
    for index in range(3):
        made.set_pod(pod(f"queues-{index}", memory=10, nodeSelector={"kubernetes.io/hostname": "n1"}))
    for index in range(3):
        made.set_pod(pod(f"goes-{index}", memory=10, nodeSelector={"kubernetes.io/hostname": "n2"}))
    async with asyncio.timeout(20):
        names = sorted([await binder.bound.get() for _ in range(3)])
    running.cancel()
    loop.abandon()
    await loop.drain(5)
    return names


async def test_a_locked_node_delays_no_other_pod() -> None:
    """One Binding may be under way at a time; three pods that wait for the lock of their node do not count."""
    made = state("n1", "n2")
    assert await bound_on_n2(made, cycle_of(made), StuckNode()) == ["goes-0", "goes-1", "goes-2"]


async def test_a_pod_that_waits_for_volumes_delays_no_other_pod() -> None:
    """Nor do three pods count whose volumes take long."""
    made = state("n1", "n2")
    assert await bound_on_n2(made, Cycle(made), AnyNode()) == ["goes-0", "goes-1", "goes-2"]
