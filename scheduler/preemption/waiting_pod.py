"""The pods that fit nowhere, for which others may be preempted."""

from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from scheduler.objects import Pod
from scheduler.queue.offer import offer
from scheduler.queue.scheduling_queue import SchedulingQueue


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


WaitingPods = Callable[[int], Iterable[WaitingPod]]
"""Returns the pods above a priority, the first to be served first."""


def of_queue(queue: SchedulingQueue) -> WaitingPods:
    """Return the pods that wait in the scheduler's own queue, in its order."""

    def waiting(above: int) -> Iterator[WaitingPod]:
        entries = [each for each in queue if each.place == "unschedulable" and each.pod.spec.priority > above]
        rank = queue.competition.order.rank
        for entry in sorted(entries, key=lambda entry: offer(rank(entry.key), entry.order)):
            lane = entry.lane.key if entry.lane is not None else entry.pod.uid
            yield WaitingPod(entry.pod, (entry.key, entry.pod.spec.priority, lane))

    return waiting
