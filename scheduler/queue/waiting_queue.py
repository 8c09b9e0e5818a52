"""The waiting pods of one GpuQueue, or of one namespace, with their budget."""

from collections.abc import Callable
from typing import cast

from allocation.fairness.queue_spec import QueueKey
from scheduler.queue.active_pods import ActivePods
from scheduler.queue.budget import Budget
from scheduler.queue.entry import Entry
from scheduler.queue.lanes import Lane, Lanes, Offer
from scheduler.queue.queue_order import Rank


class WaitingQueue:
    """The active and the unschedulable pods of one queue.

    Attributes:
        key: which queue it is.
        active: pods that need no event to be tried, in order.
        lanes: unschedulable pods that are tried for this queue alone.
        shared: unschedulable pods that are tried for all queues with pods of the same kind (`scheduler.queue.kinds`).
        budget: the scheduling time that they used.
        rank: the worst rank with which one of its shared lanes competes; None while they do not.
        first: the pod that was found to be tried next.
        offered: the sort key with which the queue competes with others; None while it does not.
    """

    __slots__ = (
        "_has_new_events",
        "_is_turn_of_active",
        "active",
        "budget",
        "first",
        "key",
        "lanes",
        "offered",
        "rank",
        "shared",
    )

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.active = ActivePods()
        self.lanes = Lanes()
        self.shared = Lanes(are_shared=True)
        self.budget = Budget()
        self.rank: Rank | None = None
        self.first: Entry | None = None
        self.offered: Offer | None = None
        self._has_new_events = False
        self._is_turn_of_active = False

    def __lt__(self, other: "WaitingQueue") -> bool:
        """Compare by key, for heaps whose entries would be equal otherwise."""
        return self.key < other.key

    def restart_sweep(self, *, has_credit: bool) -> None:
        """Retry unschedulable pods from the first on; beyond the credit, only after the current sweep has ended.

        Otherwise frequent events would keep a sweep of many expensive pods from ever reaching its end.
        """
        self._has_new_events = not has_credit
        if has_credit:
            self.lanes.restart_sweep()

    def next(self, is_due: Callable[[Lane], bool], *, has_credit: bool, is_strict: bool = False) -> Entry | None:
        """Return the next pod to try, or None; within the credit, those that are tried for all queues are left out.

        Beyond the credit, active and unschedulable pods take turns. If `is_strict`, only the first pod is tried, and
        the others wait behind it.
        """
        active = self.active.first
        if is_strict:
            return self._first(active, is_due)
        rejected = cast("Entry | None", self.lanes.next(is_due)) if self.lanes else None
        if rejected is None and not has_credit:
            rejected = next((lane.pods[0] for lane in self.shared if is_due(lane)), None)
        if self._has_new_events and (rejected is None or has_credit):
            self._has_new_events = False
            self.lanes.restart_sweep()
            rejected = cast("Entry | None", self.lanes.next(is_due))
        if active is None or rejected is None:
            return active or rejected
        if not has_credit:
            return active if self._is_turn_of_active else rejected
        return min(active, rejected, key=lambda pod: pod.order)

    def _first(self, active: Entry | None, is_due: Callable[[Lane], bool]) -> Entry | None:
        """Return the first of all pods unless it is unschedulable and nothing has happened that may help it."""
        lane = self.lanes.first
        if lane is None or (active is not None and active.order < lane.order):
            return active
        first: Entry | None = lane.pods[0] if is_due(lane) else None
        return first

    def pass_turn(self) -> None:
        """Give the next turn to the other kind of pods, because one was popped."""
        self._is_turn_of_active = not self._is_turn_of_active

    def is_idle(self, now: float) -> bool:
        """Whether this queue has neither pods nor debt, so that it need not be kept."""
        return self.active.first is None and not self.lanes and not self.shared and not self.budget.debt(now)
