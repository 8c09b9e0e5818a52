"""Which waiting pod is tried next: the first one over all queues and all kinds of pods.

Each queue within its budget competes with its first active pod. Unschedulable pods compete by kind: after an event that
may help pods of a kind, one of them is tried for all queues, the first in order. Whatever has become worse since it was
offered is offered again when it is its turn; whatever has become better is offered at once.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final, cast

from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import added, subtracted
from allocation.steps import Steps
from scheduler.queue.entry import Entry
from scheduler.queue.kinds import Kind
from scheduler.queue.lanes import Lane, Offer, offer
from scheduler.queue.queue_order import NO_DEMAND, QueueOrder, WaitingDemand
from scheduler.queue.queueing_hints import ClusterEvent, members
from scheduler.queue.waiting_queue import WaitingQueue

_KINDS: Final = 512
"""The most kinds of rejected pods that compete over all queues; pods of others are tried for each queue by itself."""
_STEP: Final = 128
"""The lanes that are compared in one step."""
_IDLE: Final = 64
"""The number of events after which queues without pods are looked for and forgotten."""


class Competition:
    """The active and the unschedulable pods of all queues.

    Attributes:
        order: the order of the queues.
        demands: what the pods of each queue require that wait for cards or nodes to become free.
    """

    def __init__(
        self,
        order: QueueOrder,
        *,
        may_fit: Callable[[Hashable], bool],
        on_skipped: Callable[[Entry], object],
        on_separated: Callable[[Entry], object],
    ) -> None:
        """Begin without pods; `may_fit` is False for a kind of which no pod fits now, as is known without a decision.

        `on_skipped` is called with the first pod of a kind that still fits nowhere and was not tried, `on_separated`
        with each pod that has to be tried again because the order of its queue is strict now.
        """
        self.order = order
        self.demands: dict[QueueKey, WaitingDemand] = {}
        self._may_fit = may_fit
        self._on_skipped = on_skipped
        self._on_separated = on_separated
        self._queues: dict[QueueKey, WaitingQueue] = {}
        self._kinds: dict[Hashable, Kind] = {}
        self._heads: list[tuple[int, int, int, str, int, int, WaitingQueue | Kind]] = []
        """What the first pods of queues with credit, and of kinds, compete with: an offer, a serial number, its source.

        Entries that are out of date are skipped. They are flat, because nested tuples would be compared twice.
        """
        self._indebted: dict[QueueKey, WaitingQueue] = {}
        self._reranked: set[WaitingQueue] = set()
        self._is_reranked = False
        """Whether the ranks of all queues may have changed."""
        self._serial = itertools.count()
        self._events = 0
        self._last_event: dict[ClusterEvent, int] = {}
        """The serial number of the last event of each kind."""
        self._sweeping: dict[QueueKey, WaitingQueue] = {}
        """Queues with lanes of their own."""
        self._touched: set[Kind] = set()
        """Kinds whose first pod may be another one now."""
        self._has_new_events = False

    def demanding(self, has_waited: Callable[[Entry], bool]) -> Steps[list[Entry]]:
        """Return of each queue the first pod that waits for cards or nodes to become free, and `has_waited` enough.

        Of equal pods only the first is considered.
        """
        found = []
        for queue in [self._queues[key] for key in self.demands]:
            first: Entry | None = None
            for position, lane in enumerate((*queue.lanes, *queue.shared)):
                if position % _STEP == _STEP - 1:
                    yield
                entry = cast("Entry | None", lane.pods[0] if lane.pods else None)
                if entry is None or entry.demand is None or (first is not None and first.order <= entry.order):
                    continue
                if has_waited(entry):
                    first = entry
            if first is not None:
                found.append(first)
            yield
        return found

    # ---- changes ---------------------------------------------------------------------------------------------------

    def add_active(self, entry: Entry, now: float) -> None:
        """Add a pod that needs no event to be tried."""
        queue = self._queue_of(entry)
        queue.active.add(entry)
        self._offer(queue, now)

    def add_rejected(self, entry: Entry, key: Hashable, events: tuple[ClusterEvent, ...]) -> Lane:
        """Add a rejected pod of the kind `key`, None for a kind of its own, which one of `events` may help."""
        entry.lane = lane = self._add_to_lane(entry, key, events)
        if entry.demand is not None:
            before = self.demands.get(entry.key, NO_DEMAND)
            self.demands[entry.key] = WaitingDemand(added(before.amounts, entry.demand), before.pods + 1)
        return lane

    def withdraw(self, entry: Entry) -> None:
        """Remove a pod from the active pods, or from its lane."""
        self._withdraw(entry, self._queue_of(entry))

    def _withdraw(self, entry: Entry, queue: WaitingQueue) -> None:
        if entry.lane is not None:
            if entry.demand is not None:
                before = self.demands[entry.key]
                self.demands[entry.key] = WaitingDemand(subtracted(before.amounts, entry.demand), before.pods - 1)
                if before.pods == 1:
                    del self.demands[entry.key]
            if entry.lane.is_shared:
                queue.shared.remove(entry, entry.lane)
                self._leave_kind(self._kinds[entry.lane.key], entry.lane)
            else:
                queue.lanes.remove(entry, entry.lane)
            entry.lane = None
        elif entry.place == "active":
            queue.active.remove(entry)
        if queue.first is entry or self.order.is_strict(queue.key):
            self._reranked.add(queue)

    def charge(self, entry: Entry, seconds: float, now: float) -> None:
        """Charge the queue of a pod for what scheduling the pod cost."""
        self._queue_of(entry).budget.charge(seconds, now=now)

    def has_credit(self, key: QueueKey, now: float) -> bool:
        """Whether a queue is within its budget."""
        queue = self._queues.get(key)
        return queue is None or queue.budget.has_credit(now)

    def notify(self, events: ClusterEvent) -> None:
        """Note an event that may help pods."""
        self._events += 1
        for event in members(events):
            self._last_event[event] = self._events
        self._has_new_events = True

    def rerank(self, key: QueueKey | None) -> None:
        """Note that the rank of a queue may have changed; None means all queues."""
        if key is None:
            self._is_reranked = True
        elif key in self._queues:
            self._reranked.add(self._queues[key])

    # ---- the next pod ----------------------------------------------------------------------------------------------

    def next(self, now: float) -> Entry | None:
        """Remove and return the pod that is tried next, or None if none is due."""
        queue = self._next_queue(now)
        if queue is None or queue.first is None:
            return None
        entry = queue.first
        if entry.lane is not None and not entry.lane.is_shared:
            queue.lanes.continue_after(entry.order)
        self._withdraw(entry, queue)  # the next pod of the queue competes once it is known what this one takes
        queue.pass_turn()
        entry.tried = self._events
        return entry

    def _next_queue(self, now: float) -> WaitingQueue | None:
        """Return the queue whose first pod is next, or None if no pod is due."""
        if self._has_new_events:
            self._has_new_events = False
            self._restart_sweeps(now)
        self._offer_reranked(now)
        if self._indebted:
            self._offer_solvent(now)
        while self._heads or self._touched:
            if self._touched:
                self._offer_kinds()
                continue
            first = heapq.heappop(self._heads)
            offered, source = first[:5], first[6]
            if offered != source.offered:
                continue
            source.offered = None
            found = self._of_kind(source, offered, now) if isinstance(source, Kind) else self._with_credit(source, now)
            if found is None:
                continue
            if not self._is_blocked(found):
                return found
            if isinstance(source, Kind):
                self._touched.add(source)
                self._offer_kinds()
            else:
                self._offer(found, now)
            break  # the others are of the same tier or a lower one
        due = (each for each in self._indebted.values() if self._find_first(each, now) is not None)
        ready = (each for each in due if not self._is_blocked(each))
        return min(ready, key=lambda queue: queue.budget.debt(now), default=None)

    def _with_credit(self, queue: WaitingQueue, now: float) -> WaitingQueue | None:
        """Return a queue that is within its budget; otherwise it does not compete until it is again."""
        if queue.budget.has_credit(now):
            return queue
        self._indebted[queue.key] = queue
        for lane in queue.shared:
            kind = self._kinds[lane.key]
            kind.set(lane, None)
            self._touched.add(kind)
        return None

    def _of_kind(self, kind: Kind, offered: Offer, now: float) -> WaitingQueue | None:
        """Return the queue with the first pod of a kind, which competed with `offered`; None if it does no more."""
        lane = kind.first()
        if lane is None or not self._is_due(kind):
            return None
        queue = self._queues[lane.pods[0].key]
        if offer(self.order.rank(queue.key), lane.order) != offered:
            self._offer_lane(kind, lane, queue)
        elif not self._may_fit(kind.key):
            kind.tried = self._events
            self._on_skipped(lane.pods[0])
            return None
        elif self._with_credit(queue, now) is not None:
            queue.first = lane.pods[0]
            return queue
        self._touched.add(kind)
        return None

    def _is_blocked(self, queue: WaitingQueue) -> bool:
        """Whether a queue has to wait for one of a higher tier."""
        return bool(self.demands) and self.order.is_blocked(queue.key, self.demands)

    def _find_first(self, queue: WaitingQueue, now: float) -> Entry | None:
        """Find the pod of a queue that is tried next, and return it; None if none is due."""
        has_credit, is_strict = queue.budget.has_credit(now), self.order.is_strict(queue.key)
        queue.first = queue.next(self._is_lane_due, has_credit=has_credit, is_strict=is_strict)
        return queue.first

    def _is_due(self, pods: Lane | Kind) -> bool:
        """Whether an event that may help equal pods has happened since one of them was tried."""
        return any(self._last_event.get(event, -1) > pods.tried for event in pods.events)

    def _is_lane_due(self, lane: Lane) -> bool:
        """The same for a lane; of a shared one, a pod of another queue may have been tried."""
        return self._is_due(self._kinds[lane.key] if lane.is_shared else lane)

    # ---- offers ----------------------------------------------------------------------------------------------------

    def _offer(self, queue: WaitingQueue, now: float) -> None:
        """Let the first pod of a queue compete with those of other queues."""
        if queue.key in self._indebted:
            return
        first = self._find_first(queue, now)
        offered = offer(self.order.rank(queue.key), first.order) if first is not None else None
        if offered != queue.offered:
            queue.offered = offered
            if offered is not None:
                heapq.heappush(self._heads, (*offered, next(self._serial), queue))

    def _offer_lanes(self, queue: WaitingQueue) -> None:
        """Let the lanes of a queue compete with those of the same kinds in other queues."""
        queue.rank = None
        for lane in queue.shared:
            self._offer_lane(self._kinds[lane.key], lane, queue)

    def _offer_lane(self, kind: Kind, lane: Lane, queue: WaitingQueue) -> None:
        """Let a lane compete by the rank of its queue.

        When the rank becomes worse, or the first pod is gone, it still competes as before until it is next.
        """
        offered = None
        if queue.key not in self._indebted:
            rank = self.order.rank(queue.key)
            queue.rank = rank if queue.rank is None else max(rank, queue.rank)
            offered = offer(rank, lane.order)
        kind.set(lane, offered)
        self._touched.add(kind)

    def _offer_kinds(self) -> None:
        """Let the first pod of each touched kind compete, if an event may have helped it."""
        for kind in self._touched:
            lane = kind.first() if self._is_due(kind) else None
            offered = lane.offered if lane is not None else None
            if offered != kind.offered:
                kind.offered = offered
                if offered is not None:
                    heapq.heappush(self._heads, (*offered, next(self._serial), kind))
        self._touched.clear()

    def _offer_reranked(self, now: float) -> None:
        if self._is_reranked:
            self._is_reranked = False
            self._reranked.update(self._queues.values())
        while self._reranked:
            queue = self._reranked.pop()
            self._offer(queue, now)
            if queue.shared and queue.key not in self._indebted:
                if self.order.is_strict(queue.key):
                    self._separate(queue)
                elif queue.rank is None or self.order.rank(queue.key) < queue.rank:
                    self._offer_lanes(queue)

    def _offer_solvent(self, now: float) -> None:
        """Let the queues compete again that are within their budget again."""
        for queue in tuple(self._indebted.values()):
            if queue.budget.has_credit(now):
                del self._indebted[queue.key]
                self._offer(queue, now)
                self._offer_lanes(queue)

    def _separate(self, queue: WaitingQueue) -> None:
        """Try the pods of a queue for this queue alone, because its order is strict now."""
        for entry in [entry for lane in queue.shared for entry in lane.pods]:
            self._on_separated(entry)

    def _restart_sweeps(self, now: float) -> None:
        for queue in tuple(self._sweeping.values()):
            if not queue.lanes:
                del self._sweeping[queue.key]
            else:
                queue.restart_sweep(has_credit=queue.budget.has_credit(now))
                self._offer(queue, now)
        self._touched.update(kind for kind in self._kinds.values() if self._is_due(kind))
        if self._events % _IDLE == 0:
            self._drop_idle(now)

    def _drop_idle(self, now: float) -> None:
        """Forget the queues without pods."""
        for queue in tuple(self._queues.values()):
            if queue.is_idle(now):
                del self._queues[queue.key]
                self._indebted.pop(queue.key, None)
                queue.offered = None

    # ---- queues and kinds ------------------------------------------------------------------------------------------

    def _queue_of(self, entry: Entry) -> WaitingQueue:
        queue = self._queues.get(entry.key)
        if queue is None:
            queue = self._queues[entry.key] = WaitingQueue(entry.key)
        return queue

    def _add_to_lane(self, entry: Entry, key: Hashable, events: tuple[ClusterEvent, ...]) -> Lane:
        """Add a rejected pod to the lane of its kind, which competes over all queues, or to a lane of its queue."""
        queue, kind = self._queue_of(entry), self._kind(entry, key)
        if kind is None:
            self._sweeping[queue.key] = queue
            own = entry.pod.uid if key is None else key
            return queue.lanes.add(entry, own, tried=entry.tried, events=events)
        lane = queue.shared.add(entry, key, tried=entry.tried, events=events)
        if entry.tried >= kind.tried:
            kind.tried, kind.events = entry.tried, events
        self._offer_lane(kind, lane, queue)
        return lane

    def _kind(self, entry: Entry, key: Hashable) -> Kind | None:
        """Return the kind of a rejected pod; None if it is tried for its queue alone."""
        if key is None or self.order.is_strict(entry.key):
            return None
        kind = self._kinds.get(key)
        if kind is None and len(self._kinds) < _KINDS:
            kind = self._kinds[key] = Kind(key)
        return kind

    def _leave_kind(self, kind: Kind, lane: Lane) -> None:
        """Note that a pod has left a lane of a kind."""
        if not lane.pods:
            kind.remove(lane)
        if kind:
            self._touched.add(kind)
        else:
            del self._kinds[kind.key]
            self._touched.discard(kind)
            kind.offered = None
