"""Which reservations are free for a pod although they are kept from others.

Its own are what is held for it, because it has waited too long or preempts others, and the MIG instances that were
created for it. If it fits nowhere else, what is held for pods of lower rank is free for it, too.
"""

from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

Lift = frozenset[str]
"""The UIDs of reservations that are taken to be gone while a pod is evaluated. The reservations themselves stay."""
NO_LIFT: Lift = frozenset()


def own(state: ClusterState, pod: Pod) -> Lift:
    """Return the reservations that are kept for a pod."""
    return state.holds.reserved_for(pod.uid) | state.instance_requests.reserved_for(pod.uid)


def lower(state: ClusterState, pod: Pod) -> Lift:
    """Return the reservations that are kept for pods of lower rank; none of its own gang, which needs all of them."""
    if not state.holds:
        return NO_LIFT
    gang = state.gangs.of(pod.uid)
    return state.holds.lower_than(state.fair_share.pod_rank(pod), gang=gang.key if gang is not None else None)
