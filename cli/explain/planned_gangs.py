"""Simulates the pods of a workload that make up a gang, as the scheduler decides about them: together."""

from collections import Counter
from collections.abc import Callable

from allocation.gang import MOST_MEMBERS
from allocation.steps import finish
from cli.explain.replicas import Replicas
from cli.workloads.workload import Workload
from scheduler.api.gang_explanation import Rehearsed
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.gangs.gang import Gang, GangKey
from scheduler.state.cluster_state import ClusterState

Simulate = Callable[[SubmittedPod, Rehearsed], Simulation]
"""Returns the simulation of a pod, by what a decision about its gang would do."""


def together(
    cycle: SchedulingCycle, workload: Workload, *, submit: Callable[[int], SubmittedPod], simulate: Simulate
) -> Replicas | None:
    """Evaluate all pods of a workload in one decision; None if there are too few for their gang, or it needs no more.

    If the gang fits, its pods stay reserved in the state; otherwise nothing of them is left.

    Raises:
        NotAdmittedError: admission would refuse one of the pods.
    """
    state = cycle.state
    key = _completed_gang(state, workload.total, submit(0)) if workload.total else None
    if key is None:
        return None
    own = {each.pod.uid: each for each in map(submit, range(workload.total))}
    for each in own.values():
        state.gangs.set_waiting(each.pod)
        state.queue.add(each.pod)
    gang = state.gangs.get(key)
    if gang is None:
        return None
    entries = [entry for uid in tuple(gang.waiting) if (entry := state.queue.get(uid)) is not None]
    found = finish(GangCycle(cycle).schedule(gang, entries))
    try:
        return _summary(workload, gang, found, own, simulate)
    finally:
        for uid in own:
            state.queue.remove(uid)
            state.gangs.drop_waiting(uid)


def _completed_gang(state: ClusterState, count: int, first: SubmittedPod) -> GangKey | None:
    """Return the gang that as many pods like the `first` one complete; None if they do not, or it is complete."""
    key, declaration = state.gangs.joined(first.pod)
    if key is None or declaration is None or count > MOST_MEMBERS:
        return None
    gang = state.gangs.get(key) or Gang(key)
    size = max(gang.size, declaration.size)
    return key if gang.placed < size <= gang.placed + len(gang.waiting) + count and size > 1 else None


def _summary(
    workload: Workload, gang: Gang, found: Rehearsed, own: dict[str, SubmittedPod], simulate: Simulate
) -> Replicas:
    """Return how many of the `own` pods have nodes."""
    nodes: Counter[str] = Counter()
    unfit: Simulation | None = None
    if isinstance(found, ScheduledGang):
        nodes.update(chosen.node for entry, chosen in found.members if entry.pod.uid in own)
        note = f"the pods of gang {gang.key} get nodes together: {gang.placed} of {gang.size} have one"
        rejected = next((own[entry.pod.uid] for entry, _ in found.rejected if entry.pod.uid in own), None)
        unfit = simulate(rejected, found) if rejected is not None else None
    else:
        note = f"the pods of gang {gang.key} get nodes together or not at all"
        first = next(iter(own.values()))
        unfit = simulate(own.get(found.pod.uid, first) if isinstance(found, RejectedGang) else first, found)
    return Replicas(
        workload.total, workload.total, nodes.total(), dict(sorted(nodes.items())), workload.note or note, unfit
    )
