"""Decisions go on whatever a Binding waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cluster.events import Recorder
from scheduler.binder import Outcome, Result
from scheduler.commitment import Committer
from scheduler.loop import Loop
from scheduler.metrics import Metrics
from tests.scheduler.builders import pod, state

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.cycle import Chosen
    from scheduler.objects import Pod
    from scheduler.plugin_binder import PluginBinder

NOTHING = cast("Api", None)


class StuckNode:
    """A binder whose node n1 is locked for ever."""

    def __init__(self) -> None:
        self.bound: asyncio.Queue[str] = asyncio.Queue()

    def queues(self, chosen: Chosen) -> bool:
        """Whether the decision is for the locked node."""
        return chosen.node == "n1"

    async def bind(self, pod: Pod, chosen: Chosen) -> Result:
        """Bind at once, or never."""
        if self.queues(chosen):
            await asyncio.Event().wait()
        self.bound.put_nowait(pod.metadata.name)
        return Result(Outcome.BOUND)


async def test_a_locked_node_keeps_no_other_pod_waiting() -> None:
    """One Binding may be under way at a time; three that queue for their node do not count."""
    made = state("n1", "n2")
    binder = StuckNode()
    recorder = Recorder(NOTHING, component="test", instance="test")
    metrics = Metrics(ledger=lambda: None)
    committer = Committer(state=made, binder=cast("PluginBinder", binder), recorder=recorder, metrics=metrics)
    loop = Loop(
        api=NOTHING,
        state=made,
        committer=committer,
        recorder=recorder,
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
