"""Explains the gang of a pod: whether its pods would get nodes together now, by the function that decides it."""

from typing import Final

from allocation.reasons import PodReason
from allocation.steps import Steps
from scheduler.api.gang_types import GangExplanation
from scheduler.api.gang_view import pause_seconds
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import ScheduleResult, Unschedulable, waiting
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.gangs.gang import Gang
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.state.cluster_state import ClusterState

MOST_REHEARSED: Final = 256
"""The most pods of a gang that is rehearsed: nothing else is decided meanwhile."""
MOST_SECONDS: Final = 0.5
"""The time that a rehearsal may take, without interruptions."""

Rehearsed = ScheduledGang[Entry] | RejectedGang | None
"""What a decision about the gang of a pod would do; None if that is not known."""


def is_rehearsed(state: ClusterState, pod: Pod) -> bool:
    """Whether a rehearsal would say something about a pod: it waits in a gang that could be decided now."""
    gang = state.gangs.of(pod.uid)
    if gang is None or state.is_external(pod) or pod.uid not in gang.waiting or len(gang.waiting) > MOST_REHEARSED:
        return False
    return not gang.is_satisfied and not gang.unready


def rehearse(cycle: SchedulingCycle, pod: Pod) -> Steps[Rehearsed]:
    """Return what a decision about the gang of a pod would do now.

    Its pods are reserved meanwhile, so no decision and no other inquiry may run between the steps
    (`ClusterState.alone`). Afterwards everything is as before.
    """
    state, gang = cycle.state, cycle.state.gangs.of(pod.uid)
    if gang is None or not is_rehearsed(state, pod):
        return None
    entries = [entry for uid in tuple(gang.waiting) if (entry := state.queue.get(uid)) is not None]
    return (yield from GangCycle(cycle).schedule(gang, entries, is_rehearsal=True))


def result(state: ClusterState, pod: Pod, alone: ScheduleResult, rehearsed: Rehearsed) -> ScheduleResult:
    """Return what happens to a pod of which `alone` is the result if nothing is known of its gang."""
    gang = state.gangs.of(pod.uid)
    if gang is None or pod.uid not in gang.waiting or gang.is_satisfied:
        return alone
    if isinstance(rehearsed, ScheduledGang):
        results: tuple[tuple[Entry, ScheduleResult], ...] = (*rehearsed.members, *rehearsed.rejected)
        return next((found for entry, found in results if entry.pod.uid == pod.uid), alone)
    if isinstance(rehearsed, RejectedGang):
        why = rehearsed.result
        return Unschedulable(rehearsed.note(gang), why.reasons, demand=why.demand, path=why.path)
    return waiting(PodReason.GangIncomplete, gang.unready) if gang.unready else alone


def gang_of(state: ClusterState, pod: Pod, rehearsed: Rehearsed = None) -> GangExplanation | None:
    """Return the gang of a pod; None without one. A planned pod is one more that waits."""
    gang = state.gangs.of(pod.uid)
    if gang is None:
        return _planned(state, pod)
    fitting: int | None = None
    rejected: tuple[Pod, Unschedulable] | None = None
    if isinstance(rehearsed, RejectedGang):
        fitting, rejected = rehearsed.fitting, (rehearsed.pod, rehearsed.result)
    elif isinstance(rehearsed, ScheduledGang):
        fitting = len(rehearsed.members)
        rejected = next(((entry.pod, found) for entry, found in rehearsed.rejected), None)
    return GangExplanation(
        name=gang.key.name,
        state=gang.state,
        size=gang.size,
        placed=gang.placed,
        waiting=len(gang.waiting),
        pause_seconds=pause_seconds(state, gang),
        fitting=None if fitting is None else gang.placed + fitting,
        pod=rejected[0].metadata.name if rejected is not None else "",
        why=rejected[1].note if rejected is not None else "",
    )


def _planned(state: ClusterState, pod: Pod) -> GangExplanation | None:
    """Return the gang of a pod that does not exist yet, or waits for its scheduling gates."""
    key, declaration = state.gangs.joined(pod)
    if key is None or declaration is None or pod.spec.node_name or pod.finished:
        return None
    gang = state.gangs.get(key) or Gang(key)
    size = max(gang.size, declaration.size)
    is_complete = gang.placed + len(gang.waiting) + 1 >= size
    return GangExplanation(
        name=key.name,
        state="Waiting" if is_complete else "Incomplete",
        size=size,
        placed=gang.placed,
        waiting=len(gang.waiting) + 1,
        pause_seconds=pause_seconds(state, gang),
    )
