"""Runs the scheduling loop of a test: the real queue, cycle and state, with Bindings that succeed at once."""

from collections import Counter
from typing import Final

import msgspec

from allocation.fairness.queue_spec import QueueSpec
from allocation.steps import finish
from cluster.gpu_queue import GpuQueue, QueueMeta
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.popping import due
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.worlds import bound

_MOST_DECISIONS: Final = 100
DELETED = "2026-01-01T01:00:00Z"


def gpu_queue(name: str, *, created: str = "2026-01-01T00:00:00Z", **spec: object) -> GpuQueue:
    """Return a GpuQueue for all namespaces unless `spec` says otherwise."""
    fields = {"namespaceSelector": {}, **spec}
    return GpuQueue(QueueMeta(name=name, creation_timestamp=created), msgspec.convert(fields, QueueSpec))


class Driver:
    """A scheduler that places pods when a test asks it to.

    Attributes:
        state: what it knows.
        cycle: how it decides.
        running: the pods with a node, by name.
        order: the names of the pods that were placed, in order.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.cycle = cycle_of(state)
        self.running: dict[str, Pod] = {}
        self.order: list[str] = []

    async def settle(self) -> list[str]:
        """Place pods until none is due; return the names of those that were placed, in order.

        No time goes by meanwhile, and nothing but what is decided changes, so it must come to an end.
        """
        before, decided = len(self.order), Counter[str]()
        while (entry := await due(self.state.queue)) is not None:
            decided[entry.pod.uid] += 1
            assert decided[entry.pod.uid] <= _MOST_DECISIONS, f"{entry.pod} is decided again and again"
            await self.decide(entry)
        return self.order[before:]

    async def decide(self, entry: Entry) -> None:
        """Schedule a pod that was popped."""
        queue = self.state.queue
        result = self.schedule(entry)
        if result is None:
            queue.reactivate(entry)
        elif isinstance(result, Scheduled):
            self.running[entry.pod.metadata.name] = await self.bind(entry.pod, result)
            self.order.append(entry.pod.metadata.name)
        else:
            queue.add_unschedulable(entry, result)

    def schedule(self, entry: Entry) -> ScheduleResult | None:
        """Choose a node."""
        return finish(self.cycle.schedule(entry.pod, explain=entry.explain))

    async def bind(self, pending: Pod, chosen: Scheduled) -> Pod:
        """Show the Binding of a pod to the state; return the pod."""
        running = bound(pending, chosen)
        self.state.set_pod(running, pending)
        return running

    def add(self, *pods: Pod) -> None:
        """Create pods."""
        for pod in pods:
            self.state.set_pod(pod)

    def begin_to_end(self, name: str) -> None:
        """Let a running pod begin to end, as after a DELETE or an Eviction."""
        running = self.running[name]
        meta = msgspec.structs.replace(running.metadata, deletion_timestamp=DELETED)
        self.running[name] = msgspec.structs.replace(running, metadata=meta)
        self.state.set_pod(self.running[name], running)

    def end(self, name: str) -> None:
        """Let a running pod end."""
        self.state.drop_pod(self.running.pop(name))
