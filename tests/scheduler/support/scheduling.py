"""Scheduling for tests: one cycle for each state, so that its caches are used."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scheduler.cycle.cycle import SchedulingCycle

if TYPE_CHECKING:
    from allocation.steps import Steps
    from scheduler.cycle.result import ScheduleResult
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

_CYCLES: WeakKeyDictionary[ClusterState, SchedulingCycle] = WeakKeyDictionary()


def cycle_of(state: ClusterState) -> SchedulingCycle:
    """Return the cycle of a state."""
    cycle = _CYCLES.get(state)
    if cycle is None:
        cycle = _CYCLES[state] = SchedulingCycle(state)
    return cycle


def schedule(state: ClusterState, pod: Pod, *, explain: bool = True) -> Steps[ScheduleResult | None]:
    """See `SchedulingCycle.schedule`."""
    return cycle_of(state).schedule(pod, explain=explain)


def forget(state: ClusterState, pod: Pod) -> None:
    """See `SchedulingCycle.forget`."""
    cycle_of(state).forget(pod)
