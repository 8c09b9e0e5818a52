"""Places the pods of gangs together when a test asks for it: the real queue, cycles and state, as `driving`."""

from __future__ import annotations

import msgspec

from allocation.steps import finish
from scheduler.cycle.result import Unschedulable
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import pod
from tests.scheduler.support.driving import Driver


def member(
    name: str, *, gang: str = "train", size: int = 2, memory: int = 1000, block: str = "", **more: object
) -> Pod:
    """Return a pod of a gang that waits for one card, by default a whole one."""
    annotations = {"gpu.scheduling/gang-min-members": str(size)}
    if block:
        annotations["gpu.scheduling/gang-block"] = block
    return pod(name, memory=memory, labels={"gpu.scheduling/gang": gang}, annotations=annotations, **more)  # type: ignore[arg-type]


class GangDriver(Driver):
    """A scheduler that places single pods and gangs."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self.gang_cycle = GangCycle(self.cycle)

    async def decide(self, entry: Entry) -> None:
        """Schedule a pod that was popped, or its gang."""
        state = self.state
        gang = state.gangs.of(entry.pod.uid)
        if gang is None or not state.gangs.waits_for_others(entry.pod):
            await super().decide(entry)
            return
        kind = ("gang", gang.key.namespace, gang.key.name)
        if not gang.is_complete:
            state.queue.add_unschedulable(entry, Unschedulable("too few", frozenset({"GangIncomplete"}), kind=kind))
            return
        entries = [entry, *state.queue.take(uid for uid in tuple(gang.waiting) if uid != entry.pod.uid)]
        async with state.turn:
            found = finish(self.gang_cycle.schedule(gang, entries))
        if isinstance(found, ScheduledGang):
            for each, result in found.members:
                self.running[each.pod.metadata.name] = await self.bind(each.pod, result)
                self.order.append(each.pod.metadata.name)
            for each, rejected in found.rejected:
                state.queue.add_unschedulable(each, rejected)
        elif isinstance(found, RejectedGang):
            for each in entries:
                demand = self.cycle.demand(each.pod) if found.result.demand is not None else None
                result = msgspec.structs.replace(found.result, kind=kind, is_held=False, demand=demand)
                state.queue.add_unschedulable(each, result)
        else:
            for each in entries:
                state.queue.reactivate(each)
