"""Unschedulable pods of one queue, in lanes of equal pods: the reasons that reject one reject all of them.

A sweep retries the first pod of each lane, in the order of the pods. An event starts another sweep, whose cost depends
on the number of lanes, not on the number of waiting pods.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from sortedcontainers import SortedKeyList

from scheduler.queue.queue_order import Rank
from scheduler.queue.queueing_hints import ClusterEvent

Order = tuple[int, str, int]
"""The sort key of a pod: by priority, then age, then arrival; the smallest comes first."""
Offer = tuple[int, int, int, str, int]
"""The sort key with which the first pod of a queue competes with those of other queues: the tier of the queue, the
priority of the pod, the share of the queue, the pod's age and arrival."""


def offer(rank: Rank, order: Order) -> Offer:
    """Return the sort key of a pod in a queue of `rank`."""
    tier, share = rank
    priority, created, serial = order
    return tier, priority, share, created, serial


class Pending(Protocol):
    """What lanes read of a pod."""

    @property
    def order(self) -> Order:
        """Its sort key."""


class Lane:
    """Equal pods.

    Attributes:
        key: the same for all pods that are rejected for the same reasons.
        pods: the pods, in order.
        tried: the serial number of the last event before one of them was last tried.
        events: the kinds of events that may make them schedulable, by the last result for one of them.
        note: the reasons of their last rejection; empty as long as no result had reasons.
        is_shared: whether it is tried together with those of its kind in other queues.
        offered: the sort key with which the lane competes with those of its kind in other queues; None while it does
            not.
    """

    def __init__(self, key: Hashable, *, is_shared: bool) -> None:
        self.key = key
        self.is_shared = is_shared
        self.offered: Offer | None = None
        self.events: tuple[ClusterEvent, ...] = ()
        self.pods: SortedKeyList[Any, Order] = SortedKeyList(key=_order)
        self.tried = -1
        self.note = ""

    @property
    def order(self) -> Order:
        """The order of the first pod."""
        order: Order = self.pods[0].order
        return order


class Lanes:
    """All lanes of a queue, in the order of their first pods."""

    __slots__ = ("_are_shared", "_heads", "_lanes", "_passed")

    def __init__(self, *, are_shared: bool = False) -> None:
        self._are_shared = are_shared
        self._lanes: dict[Hashable, Lane] = {}
        self._heads: SortedKeyList[Lane, Order] = SortedKeyList(key=_order)
        self._passed: Order | None = None

    def __bool__(self) -> bool:
        """Whether there is any pod."""
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over the lanes, in order."""
        return iter(self._heads)

    @property
    def first(self) -> Lane | None:
        """The lane of the first pod; None without pods."""
        lane: Lane | None = self._heads[0] if self._heads else None
        return lane

    def add(self, pod: Pending, key: Hashable, *, tried: int, events: tuple[ClusterEvent, ...]) -> Lane:
        """Add a rejected pod to the lane of `key`."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, is_shared=self._are_shared)
        else:
            self._heads.remove(lane)
        lane.pods.add(pod)
        if tried >= lane.tried:
            lane.tried, lane.events = tried, events
        self._heads.add(lane)
        return lane

    def remove(self, pod: Pending, lane: Lane) -> None:
        """Remove a pod from its lane."""
        self._heads.remove(lane)
        lane.pods.remove(pod)
        if lane.pods:
            self._heads.add(lane)
        else:
            del self._lanes[lane.key]

    def continue_after(self, order: Order) -> None:
        """Continue the sweep after a pod that is being tried."""
        self._passed = order

    def restart_sweep(self) -> None:
        """Start again at the first lane."""
        self._passed = None

    def next(self, is_due: Callable[[Lane], bool]) -> Pending | None:
        """Return the first pod of the next due lane of this sweep, or None at its end."""
        if not self._lanes:
            return None
        for lane in self._heads.irange_key(self._passed, None, inclusive=(False, True)):
            if is_due(lane):
                pod: Pending = lane.pods[0]
                return pod
            self._passed = lane.order
        return None


def _order(pod: Pending | Lane) -> Order:
    return pod.order
