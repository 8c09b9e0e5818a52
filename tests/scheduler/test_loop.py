"""The loop schedules further pods while Bindings wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.failure_handler import FailureHandler
from scheduler.loop import Loop
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.binding.plugin_binder import PluginBinder
    from scheduler.cycle.result import Scheduled
    from scheduler.objects import Pod

NOTHING = cast("Api", None)


class StuckNode:
    """A binder whose node n1 stays locked."""

    def __init__(self) -> None:
        self.bound: asyncio.Queue[str] = asyncio.Queue()

    def must_wait_for_node(self, chosen: Scheduled) -> bool:
        """Whether the pod was scheduled to the locked node."""
        return chosen.node == "n1"

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result:
        """Bind at once, or never."""
        if self.must_wait_for_node(chosen):
            await asyncio.Event().wait()
        self.bound.put_nowait(pod.metadata.name)
        return Result(Outcome.BOUND)


async def test_a_locked_node_delays_no_other_pod() -> None:
    """One Binding may be under way at a time; three pods that wait for the lock of their node do not count."""
    made = state("n1", "n2")
    binder = StuckNode()
    recorder = Recorder(NOTHING, component="test", instance="test")
    metrics = Metrics()
    cycle = cycle_of(made)
    failures = FailureHandler(api=NOTHING, queue=made.queue, cycle=cycle, recorder=recorder, metrics=metrics)
    loop = Loop(
        queue=made.queue,
        cycle=cycle,
        binding_cycle=BindingCycle(
            binder=cast("PluginBinder", binder), failures=failures, recorder=recorder, metrics=metrics
        ),
        failures=failures,
        metrics=metrics,
        concurrent_binds=1,
        is_trusted=lambda: True,
    )
    running = asyncio.create_task(loop.run())
    for index in range(3):
        made.set_pod(pod(f"queues-{index}", memory=10, nodeSelector={"kubernetes.io/hostname": "n1"}))
    for index in range(3):
        made.set_pod(pod(f"goes-{index}", memory=10, nodeSelector={"kubernetes.io/hostname": "n2"}))
    async with asyncio.timeout(5):
        assert sorted([await binder.bound.get() for _ in range(3)]) == ["goes-0", "goes-1", "goes-2"]
    running.cancel()
    loop.abandon()
    await loop.drain(5)
