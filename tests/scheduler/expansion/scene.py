"""Plans nodes for the waiting pods of a real state and queue, and plays the autoscaler that brings them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion.planner import SETTLING_SECONDS, Planner
from scheduler.preemption import waiting_pod
from tests.scheduler.support.builders import Clock, node, state
from tests.scheduler.support.gang_driving import GangDriver

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocation.settings import AllocationSettings
    from scheduler.expansion.planner import Decision
    from scheduler.objects import Pod

POOL = {"cloud.google.com/gke-nodepool": "gpus"}
TEMPLATE: dict[str, Any] = {
    "name": "gpus",
    "labels": POOL,
    "cards": 2,
    "memory_mib": 1000,
    "slots": 4,
    "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
}
"""A group whose nodes are as those of `builders`."""


class Scene:
    """A cluster, the plan for more nodes, and who brings them.

    Attributes:
        driver: places pods, with the state.
        planner: plans nodes.
        now: the time in seconds.
        asked: the names of the nodes that were asked for, in order.
    """

    def __init__(
        self,
        *nodes: str,
        settings: AllocationSettings | None = None,
        templates: Collection[Any] = (TEMPLATE,),
        **more: Any,
    ) -> None:
        self.now = 1000.0
        self.asked: list[str] = []
        self.driver = GangDriver(state(*nodes, clock=Clock(), settings=settings))
        given = msgspec.convert({"templates": templates, **more}, ExpanderSettings)
        serial = itertools.count(1)
        self.planner = Planner(self.driver.state, given, next_name=lambda: f"new-{next(serial)}")

    async def look(self) -> dict[str, Decision]:
        """Place what can be placed, and return what is decided about the others, by namespace and name."""
        await self.driver.settle()
        found = finish(waiting_pod.of_queue(self.driver.state)(lambda _: True, lambda _: True, 1000))
        groups: dict[object, tuple[Pod, ...]] = {}
        gangs = self.driver.state.gangs
        for each in found:
            gang = gangs.of(each.pod.uid) if gangs.waits_for_others(each.pod) else None
            groups[gang.key if gang else each.pod.uid] = tuple(gang.waiting.values()) if gang else (each.pod,)
        self.planner.begin(lambda pod: self.driver.state.queue.get(pod.uid) is not None)
        decisions = [each for pods in groups.values() for each in finish(self.planner.decide(pods, self.now))]
        self.asked += [each.node for each in decisions if each.node]
        return {str(each.pod).removeprefix("default/"): each for each in decisions}

    async def verdicts(self) -> dict[str, str]:
        """Return the same without the words."""
        return {name: each.verdict for name, each in (await self.look()).items()}

    def come(self, name: str, *, cards: int = 2, memory: int = 1000, **fields: Any) -> None:
        """Let the node come that was asked for, with an agent."""
        metadata = {"name": f"real-{name}", "labels": {"kubernetes.io/hostname": f"real-{name}", **POOL}}
        self.driver.state.set_node(node(f"real-{name}", metadata=metadata, **fields))
        found = tuple(Card(f"GPU-real-{name}-{index}", index, memory, slots=4) for index in range(cards))
        reported = status_of(NodeInventory(f"real-{name}", found))
        self.driver.state.agent_reports.set(GpuNodeStatus(ObjectMeta(name=f"real-{name}"), reported))
        self.planner.arrived(name, f"real-{name}", self.now)

    async def come_all(self) -> None:
        """Let all nodes come that were asked for, and let pods get their places there."""
        for name in tuple(self.planner.in_flight.templates):
            self.come(name)
        await self.driver.settle()

    def settle(self) -> None:
        """Let the time pass in which pods have to get their places on a node that has come."""
        self.now += SETTLING_SECONDS
