"""Kinds of unschedulable pods over all queues: what rejects one pod rejects all of its kind.

After an event, the first pod of each kind that the event may help competes with those of other kinds. If it is rejected
again, no other of its kind is tried. So an event costs the number of kinds, however many pods and queues wait.
"""

import heapq
import itertools
from collections.abc import Hashable, Iterator

from scheduler.queue.lanes import Lane, Offer
from scheduler.queue.queueing_hints import ClusterEvent


class Kind:
    """The lanes of one kind, of all queues that compete.

    Attributes:
        key: the same for all pods that are rejected for the same reasons.
        events: the kinds of events that may make them schedulable, by the last result for one of them.
        tried: the serial number of the last event before one of them was last tried.
        offered: the sort key with which the kind competes with others; None while it does not.
    """

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.events: tuple[ClusterEvent, ...] = ()
        self.tried = -1
        self.offered: Offer | None = None
        self._lanes: set[Lane] = set()
        self._heads: list[tuple[int, int, int, str, int, int, Lane]] = []
        self._serial = itertools.count()

    def __bool__(self) -> bool:
        """Whether there is any lane."""
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over the lanes."""
        return iter(self._lanes)

    def set(self, lane: Lane, offer: Offer | None) -> None:
        """Let a lane compete with `offer`; None while it does not."""
        self._lanes.add(lane)
        if offer != lane.offered:
            lane.offered = offer
            if offer is not None:
                heapq.heappush(self._heads, (*offer, next(self._serial), lane))

    def remove(self, lane: Lane) -> None:
        """Remove a lane without pods."""
        self._lanes.discard(lane)
        lane.offered = None

    def first(self) -> Lane | None:
        """Return the lane with the smallest offer; None if none competes."""
        while self._heads:
            first = self._heads[0]
            if first[:5] == first[6].offered:
                return first[6]
            heapq.heappop(self._heads)
        return None
