"""Tranche's own scheduling cycle as a policy: pods, nodes and reports as the API server has them, and no API server.

A task's part of a card is its percentage of memory and cores; whole cards are requested without either.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from allocation import names
from allocation.inventory import Card, NodeInventory
from allocation.settings import AllocationSettings, CardPolicy
from allocation.steps import finish
from benchmarks.packing.fleet import Choice, Fleet
from benchmarks.packing.reference import Policy
from benchmarks.packing.workload import WHOLE, Machine, Task
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from cluster.metadata import ObjectMeta
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.node_status import NodeStatus
from scheduler.objects import Node, NodeMeta, Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import ScoreWeights
from scheduler.state.cluster_state import ClusterState

_DAY: Final = 86_400
_CARD_MIB: Final = 20_000
"""So much memory that a percentage of it is exact."""
_SLOTS: Final = 100
_CARD_POLICY: Final = AllocationSettings().card_policy


def ours(
    machines: Sequence[Machine],
    *,
    stranded: float = ScoreWeights().stranded,
    card_policy: CardPolicy = _CARD_POLICY,
) -> Callable[[Fleet], Policy]:
    """Return the policy of a scheduler with default settings but for the weight of stranded cards, and for cards."""
    return lambda _fleet: Ours(machines, stranded=stranded, card_policy=card_policy)


class Ours:
    """One scheduler, whose own state is the fleet."""

    def __init__(self, machines: Sequence[Machine], *, stranded: float, card_policy: CardPolicy) -> None:
        """Report the cards of `machines` to it."""
        make_queue = partial(SchedulingQueue, clock=lambda: 0.0, first_backoff=1.0, longest_backoff=1.0)
        settings = AllocationSettings(card_policy=card_policy)
        self._state = ClusterState(settings=settings, make_queue=make_queue, clock=lambda: 0.0, stranded=stranded)
        self._cycle = SchedulingCycle(self._state)
        self._numbers = {machine.name: number for number, machine in enumerate(machines)}
        self._pods = 0
        self._running: dict[tuple[Task, Choice], list[Pod]] = {}
        for machine in machines:
            self._add(machine)

    def choose(self, task: Task) -> Choice | None:
        """See Policy; the task is counted."""
        self._pods += 1
        pod = _pod(task, self._pods)
        self._state.queue.add(pod)
        found = finish(self._cycle.schedule(pod, explain=False))
        self._state.queue.remove(pod.uid)
        if not isinstance(found, Scheduled):
            return None
        shares = found.allocation.containers.values() if found.allocation is not None else ()
        choice = Choice(self._numbers[found.node], tuple(share.index for each in shares for share in each))
        self._running.setdefault((task, choice), []).append(pod)
        return choice

    def end(self, task: Task, choice: Choice) -> None:
        """Count a task no more that was chosen for."""
        self._state.drop_pod(self._running[task, choice].pop())

    def _add(self, machine: Machine) -> None:
        name = machine.name
        allocatable = {"cpu": f"{machine.cpu}m", "memory": f"{machine.memory}Mi", "pods": "1000"}
        self._state.set_node(Node(NodeMeta(name=name), status=NodeStatus(allocatable)))
        cards = tuple(
            Card(f"GPU-{name}-{index}", index, _CARD_MIB, model=machine.model, slots=_SLOTS)
            for index in range(machine.cards)
        )
        status = status_of(NodeInventory(name, cards))
        self._state.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status))
        self._state.set_lease(Lease(LeaseMeta(name=names.heartbeat_lease(name)), LeaseSpec("agent", _DAY, "now")))


def _pod(task: Task, number: int) -> Pod:
    amounts = {"cpu": f"{task.cpu}m", "memory": f"{task.memory}Mi"}
    if task.cards:
        amounts["nvidia.com/gpu"] = str(task.cards)
    if task.milli % WHOLE:
        amounts |= {"nvidia.com/gpumem-percentage": str(task.milli // 10), "nvidia.com/gpucores": str(task.milli // 10)}
    meta: dict[str, Any] = {"name": f"p{number}", "namespace": "team", "uid": f"uid-{number}"}
    if task.models:
        meta["annotations"] = {names.USE_TYPES: ",".join(sorted(task.models))}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    spec = {"schedulerName": "tranche", "containers": containers}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, Pod)
