"""The pods that fit nowhere, for which others may be preempted; of a gang one stands for all that wait."""

import bisect
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec

from allocation.steps import Steps
from scheduler.gangs.gang import Gang
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.queue.lanes import offer
from scheduler.state.cluster_state import ClusterState

T = TypeVar("T")

_STEP: Final = 128
"""The number of pods that are read in one step."""


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod that fits nowhere.

    Attributes:
        pod: its last known state.
        kind: pods of one kind are rejected for the same reasons.
        nodes: the nodes to consider; None is all.
        gang: the gang whose pods get nodes together with this one; None for a pod that gets one alone.
    """

    pod: Pod
    kind: Hashable
    nodes: tuple[str, ...] | None = None
    gang: Gang | None = None


WaitingPods = Callable[[Callable[[Pod], bool], Callable[[WaitingPod], bool], int], Steps[Iterator[WaitingPod]]]
"""Returns the pods that the callables let preempt others now, the first to be served first.

The last argument limits how many there are of each queue, so that the others soon have their turn.
"""

Ranked = tuple[Hashable, tuple[Any, ...], WaitingPod]
"""The queue of a pod, the pod's sort key among all pods, and the pod."""


def gang_of(state: ClusterState, pod: Pod) -> Gang | None:
    """Return the gang with whose pods a pod gets a node; None if it gets one alone."""
    return state.gangs.of(pod.uid) if state.gangs.waits_for_others(pod) else None


def of_queue(state: ClusterState) -> WaitingPods:
    """Return the pods that wait in the scheduler's own queue, in its order."""
    queue = state.queue
    competition = queue.competition

    def waiting(
        has_victims: Callable[[Pod], bool], may: Callable[[WaitingPod], bool], most: int
    ) -> Steps[Iterator[WaitingPod]]:
        now = queue.clock()

        def read(entry: Entry) -> Ranked | None:
            if entry.place != "unschedulable" or not has_victims(entry.pod):
                return None
            lane, gang = entry.lane, gang_of(state, entry.pod)
            if gang is not None and lane is not None and lane.pods[0] is not entry:
                return None
            kind = entry.key, entry.pod.spec.priority, lane.key if lane is not None else entry.pod.uid
            found = WaitingPod(entry.pod, kind, gang=gang)
            if not may(found):
                return None
            is_late = not competition.has_credit(entry.key, now)
            return entry.key, (is_late, *offer(competition.order.rank(entry.key), entry.order)), found

        return (yield from first_of_each(queue, read, most=most))

    return waiting


def in_turns(first: WaitingPods, second: WaitingPods) -> WaitingPods:
    """Return the pods of two sources, one of each after the other."""

    def waiting(
        has_victims: Callable[[Pod], bool], may: Callable[[WaitingPod], bool], most: int
    ) -> Steps[Iterator[WaitingPod]]:
        ours = yield from first(has_victims, may, most)
        theirs = yield from second(has_victims, may, most)
        return (each for pair in itertools.zip_longest(ours, theirs) for each in pair if each is not None)

    return waiting


def first_of_each(items: Iterable[T], read: Callable[[T], Ranked | None], *, most: int) -> Steps[Iterator[WaitingPod]]:
    """Return the first pods of each queue in their order, at most `most` of each; `read` leaves out some items."""
    first: dict[Hashable, list[tuple[tuple[Any, ...], WaitingPod]]] = {}
    for position, item in enumerate(items):
        if position % _STEP == _STEP - 1:
            yield
        ranked = read(item)
        if ranked is not None:
            key, order, found = ranked
            chosen = first.setdefault(key, [])
            bisect.insort(chosen, (order, found), key=itemgetter(0))
            del chosen[most:]
    yield
    return (found for _, found in heapq.merge(*first.values(), key=itemgetter(0)))
