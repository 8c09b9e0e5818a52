"""The part of the scheduling queue that holds the pods of one namespace, with its budget."""

from collections.abc import Callable
from typing import Any

from sortedcontainers import SortedKeyList

from scheduler.queue.budget import Budget
from scheduler.queue.lanes import Lane, Lanes, Order, Pending


class NamespaceQueue:
    """The active and the unschedulable pods of one namespace.

    Attributes:
        active: pods that need no event to be tried, in order.
        lanes: unschedulable pods.
        budget: the scheduling time that the namespace used.
        offered: the sort key with which the namespace competes with others; None while it does not.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.active: SortedKeyList[Any, Order] = SortedKeyList(key=lambda pod: pod.order)
        self.lanes = Lanes()
        self.budget = Budget()
        self.offered: Order | None = None
        self._has_new_events = False
        self._is_turn_of_active = False

    def __lt__(self, other: "NamespaceQueue") -> bool:
        """Compare by name, for heaps whose entries would be equal otherwise."""
        return self.namespace < other.namespace

    def restart_sweep(self, *, has_credit: bool) -> None:
        """Retry unschedulable pods from the first on; beyond the credit, only after the current sweep has ended.

        Otherwise frequent events would keep a sweep of many expensive pods from ever reaching its end.
        """
        self._has_new_events = not has_credit
        if has_credit:
            self.lanes.restart_sweep()

    def next(self, is_due: Callable[[Lane], bool], *, has_credit: bool) -> Pending | None:
        """Return the next pod to try, or None.

        Beyond the credit, active and unschedulable pods take turns.
        """
        active: Pending | None = self.active[0] if self.active else None
        rejected = self.lanes.next(is_due)
        if self._has_new_events and (rejected is None or has_credit):
            self._has_new_events = False
            self.lanes.restart_sweep()
            rejected = self.lanes.next(is_due)
        if active is None or rejected is None:
            return active or rejected
        if not has_credit:
            return active if self._is_turn_of_active else rejected
        return min(active, rejected, key=lambda pod: pod.order)

    def pass_turn(self) -> None:
        """Give the next turn to the other kind of pods, because one was popped."""
        self._is_turn_of_active = not self._is_turn_of_active

    def is_idle(self, now: float) -> bool:
        """Whether this queue has neither pods nor debt, so that it need not be kept."""
        return not self.active and not self.lanes and not self.budget.debt(now)
