"""Scheduling while cards are held for pods that have waited too long, or that preempt others.

What is held for a pod is free for this pod. If it fits nowhere else, so is what is held for pods of lower rank.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from allocation.steps import Steps, finish
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

T = TypeVar("T")
Result = TypeVar("Result", ScheduleResult, ScheduleResult | None)


def attempt(state: ClusterState, pod: Pod, run: Callable[[], Steps[T]], has_fit: Callable[[T], bool]) -> Steps[T]:
    """Return the result of `run` for a pod; `has_fit` says whether a result has a node for it.

    What is lifted is lifted for this pod only, so no other task may run meanwhile.
    """
    result, _ = yield from _attempt(state, pod, run, has_fit)
    return result


def schedule(state: ClusterState, pod: Pod, run: Callable[[], Steps[Result]]) -> Steps[Result]:
    """Return the result of `run`, which reserves cards for a pod; release its hold, and the holds on what it took.

    If it was tried without some holds, other pods of its kind may be rejected where it is not.
    """
    result, has_lifted = yield from _attempt(state, pod, run, lambda result: isinstance(result, Scheduled))
    if isinstance(result, Unschedulable) and _lifts_any(state, pod):
        return msgspec.structs.replace(result, kind=None)
    if isinstance(result, Scheduled):
        state.holds.release(pod.uid)
        if has_lifted:
            state.holds.release_taken(result.node, result.charges)
    return result


def _attempt(
    state: ClusterState, pod: Pod, run: Callable[[], Steps[T]], has_fit: Callable[[T], bool]
) -> Steps[tuple[T, bool]]:
    """Return the result of `run`, and whether it needed what is held for pods of lower rank."""
    holds = state.holds
    own = [pod.uid] if holds.of(pod.uid) is not None else []
    if own:
        with holds.lifted(own):
            result = finish(run())
    else:
        result = yield from run()
    lower = _lower(state, pod)
    if has_fit(result) or not lower:
        return result, False
    with holds.lifted(own + lower):
        again = finish(run())
    return (again, True) if has_fit(again) else (result, False)


def _lower(state: ClusterState, pod: Pod) -> list[str]:
    return state.holds.lower_than(state.fair_share.pod_rank(pod))


def _lifts_any(state: ClusterState, pod: Pod) -> bool:
    return state.holds.of(pod.uid) is not None or bool(_lower(state, pod))
