"""The pods that fit nowhere, for which others may be preempted."""

import bisect
import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec

from allocation.steps import Steps
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.queue.lanes import offer
from scheduler.queue.scheduling_queue import SchedulingQueue

T = TypeVar("T")

_STEP: Final = 128
"""The number of pods that are read in one step."""


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod that fits nowhere.

    Attributes:
        pod: its last known state.
        kind: pods of one kind are rejected for the same reasons.
        nodes: the nodes to consider; None is all.
    """

    pod: Pod
    kind: Hashable
    nodes: tuple[str, ...] | None = None


WaitingPods = Callable[[Callable[[Pod], bool], Callable[[WaitingPod], bool], int], Steps[Iterator[WaitingPod]]]
"""Returns the pods that the callables let preempt others now, the first to be served first.

The last argument limits how many there are of each queue, so that the others soon have their turn.
"""

Ranked = tuple[Hashable, tuple[Any, ...], WaitingPod]
"""The queue of a pod, the pod's sort key among all pods, and the pod."""


def of_queue(queue: SchedulingQueue) -> WaitingPods:
    """Return the pods that wait in the scheduler's own queue, in its order."""
    competition = queue.competition

    def waiting(
        has_victims: Callable[[Pod], bool], may: Callable[[WaitingPod], bool], most: int
    ) -> Steps[Iterator[WaitingPod]]:
        now = queue.clock()

        def read(entry: Entry) -> Ranked | None:
            if entry.place != "unschedulable" or not has_victims(entry.pod):
                return None
            lane = entry.lane.key if entry.lane is not None else entry.pod.uid
            found = WaitingPod(entry.pod, (entry.key, entry.pod.spec.priority, lane))
            if not may(found):
                return None
            is_late = not competition.has_credit(entry.key, now)
            return entry.key, (is_late, *offer(competition.order.rank(entry.key), entry.order)), found

        return (yield from first_of_each(queue, read, most=most))

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
