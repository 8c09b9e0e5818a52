"""The scheduling queue: highest priority first, then oldest. Unschedulable pods wait for an event that may help them.

A pod is *active* (scheduled next), *unschedulable* (until an event that its queueing hint names), in *backoff* (its
Binding failed; it is scheduled again after a pause) or *held* (only a change of the pod itself helps). Lack of capacity
causes no backoff: a freed card is offered to the first pod in order. The cost of an event does not depend on the number
of waiting pods.

The order applies to namespaces within their budget (`scheduler.queue.budget`); pods of other namespaces come after.
"""

import asyncio
import copy
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Literal, cast

import msgspec

from scheduler.objects import Pod
from scheduler.queue.lanes import Lane, Order
from scheduler.queue.namespace_queue import NamespaceQueue
from scheduler.queue.queueing_hints import ClusterEvent, events_for, members

_SEARCHED = 64
"""How many equal pods are searched for the next one whose published reasons are out of date."""


Place = Literal["active", "backoff", "unschedulable", "held", "binding"]


class Entry(msgspec.Struct, eq=False):
    """A pod without a node.

    Attributes:
        pod: its last known state.
        order: its sort key.
        since: when it was first seen, on the clock of the queue.
        place: where it is; `binding` once it is popped.
        attempts: failures with reasons so far.
        ready_at: when a pause ends: after a failed Binding, or until reasons that are out of date are computed again.
        published: the note that was last written to its condition.
        due_since: when it became active.
        reasons: the codes that were last published.
        tried: the serial number of the last event before it was popped.
        lane: the pods that are rejected for the same reasons; None unless it is unschedulable.
        explain: whether its next result must give reasons if no node takes it.
        is_stale: whether its reasons are out of date, and are computed again at `ready_at`.
    """

    pod: Pod
    order: Order
    since: float
    place: Place = "active"
    attempts: int = 0
    ready_at: float = 0.0
    published: str = ""
    due_since: float = 0.0
    reasons: frozenset[str] = frozenset()
    tried: int = -1
    lane: Lane | None = None
    explain: bool = True
    is_stale: bool = False


class QueuePosition(msgspec.Struct, frozen=True):
    """Where a pod without a node is in the scheduling queue.

    Attributes:
        place: `active`, scheduled next; `backoff`, after a failed Binding; `unschedulable` until one of `events`,
            or, without events, until the pod itself changes; or `binding`.
        attempts: failures so far.
        waited_seconds: the time since it was first seen.
        pause_seconds: the time until it is scheduled again, if it is in backoff.
        events: the kinds of events after which it is scheduled again.
    """

    place: Literal["active", "backoff", "unschedulable", "binding"]
    attempts: int
    waited_seconds: float
    pause_seconds: float
    events: tuple[str, ...]


class SchedulingQueue:
    """Pods that wait for a node."""

    def __init__(self, *, clock: Callable[[], float], first_backoff: float, longest_backoff: float) -> None:
        self.clock = clock
        self._backoff = (first_backoff, longest_backoff)
        self._entries: dict[str, Entry] = {}
        self._places: Counter[Place] = Counter()
        self._namespaces: dict[str, NamespaceQueue] = {}
        self._heads: list[tuple[Order, NamespaceQueue]] = []
        """The first pod of each namespace with credit; entries that are out of date are skipped."""
        self._indebted: dict[str, NamespaceQueue] = {}
        self._pausing: list[tuple[float, int, Entry]] = []
        self._serial = itertools.count()
        self._events = 0
        self._last_event: dict[ClusterEvent, int] = {}
        """The serial number of the last event of each kind."""
        self._has_new_events = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of pods without a node, those being bound included."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the pods without a node."""
        return iter(tuple(self._entries.values()))

    def depths(self) -> dict[str, int]:
        """Return the number of pods in each place; `binding` are those being scheduled or bound."""
        count = self._places
        return {
            "active": count["active"],
            "backoff": count["backoff"],
            "unschedulable": count["unschedulable"] + count["held"],
            "binding": count["binding"],
        }

    def get(self, uid: str) -> Entry | None:
        """Return the entry of a pod, or None if it is not in the queue."""
        return self._entries.get(uid)

    def pod(self, uid: str) -> Pod | None:
        """Return the last known state of a pod, or None if it is not in the queue."""
        entry = self._entries.get(uid)
        return entry.pod if entry is not None else None

    def position(self, uid: str) -> QueuePosition | None:
        """Return the position of a pod, or None if it is not in the queue."""
        entry = self._entries.get(uid)
        if entry is None:
            return None
        now = self.clock()
        events = tuple(str(event.name).lower() for event in entry.lane.events) if entry.lane is not None else ()
        pause = max(0.0, entry.ready_at - now) if entry.place == "backoff" else 0.0
        place = "unschedulable" if entry.place == "held" else entry.place
        return QueuePosition(place, entry.attempts, now - entry.since, pause, events)

    # ---- pods are created, changed and deleted ---------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Add a pod, or replace its state; a change of the pod itself may make it schedulable."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            order = (-pod.spec.priority, pod.metadata.creation_timestamp or "", next(self._serial))
            entry = self._entries[pod.uid] = Entry(pod, order, since=self.clock(), place="binding")
            self._places["binding"] += 1
            self._activate(entry)
            return
        changed = entry.pod.spec != pod.spec or entry.pod.metadata.annotations != pod.metadata.annotations
        entry.pod = pod
        if changed and entry.place in ("unschedulable", "held"):
            self._activate(entry)

    def remove(self, uid: str) -> None:
        """Forget a pod that has a node, is finished, or was deleted."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._withdraw(entry)
            self._places[entry.place] -= 1

    # ---- scheduling failed -----------------------------------------------------------------------------------------

    def add_unschedulable(
        self, entry: Entry, *, note: str, reasons: frozenset[str], is_held: bool = False, kind: Hashable = None
    ) -> None:
        """Put back a pod that no node takes; it waits for an event that may lift one of `reasons`.

        Pods of one `kind` are rejected for the same reasons; None is a kind of its own. If `note` is empty, the pod is
        scheduled again, with reasons, when the pause after the last result with reasons is over.
        """
        if self._entries.get(entry.pod.uid) is not entry:
            return
        was_stale = entry.is_stale
        if note:
            self._pause(entry)
            entry.is_stale = False
        elif not was_stale:
            self._explain_at(entry, entry.ready_at)
        if is_held:
            self._move(entry, "held")
            return
        self._move(entry, "unschedulable")
        entry.lane = lane = self._queue_of(entry).lanes.add(
            entry, entry.pod.uid if kind is None else kind, tried=entry.tried, events=events_for(reasons)
        )
        if note and lane.note != note:
            lane.note = note
            self._explain_next(lane, lane.pods, excluding=entry)
        elif note and was_stale:
            self._explain_next(lane, lane.pods.irange(entry, None), excluding=entry)

    def requeue(self, uid: str) -> None:
        """Put back a pod whose Binding failed; it is scheduled again after a pause.

        Ignored for a pod that was removed meanwhile, even if it was added again: then it is active by itself.
        """
        entry = self._entries.get(uid)
        if entry is None or entry.place != "binding":
            return
        self._pause(entry)
        self._move(entry, "backoff")
        heapq.heappush(self._pausing, (entry.ready_at, next(self._serial), entry))
        self._changed.set()

    def reactivate(self, entry: Entry) -> None:
        """Put back a pod that changed while it was being scheduled."""
        if self._entries.get(entry.pod.uid) is entry:
            self._activate(entry)

    def charge(self, entry: Entry, seconds: float, *, placed: bool) -> None:
        """Charge the namespace of a pod for the time that scheduling the pod took."""
        self._queue_of(entry).budget.charge(seconds, placed=placed, now=self.clock())

    def notify(self, events: ClusterEvent) -> None:
        """Have all unschedulable pods scheduled again that one of `events` may help."""
        self._events += 1
        for event in members(events):
            self._last_event[event] = self._events
        self._has_new_events = True
        self._changed.set()

    def wake(self, uids: Iterable[str]) -> None:
        """Have these pods scheduled again, because what they require changed although they did not."""
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is None:
                continue
            entry.pod = copy.copy(entry.pod)  # a cycle that began before finds that the pod changed
            if entry.place in ("unschedulable", "held"):
                self._activate(entry)

    # ---- the next pod ----------------------------------------------------------------------------------------------

    async def pop(self) -> Entry:
        """Return the next pod to schedule; wait until there is one."""
        while True:
            self._changed.clear()
            now = self.clock()
            self._end_pauses(now)
            queue = self._next_queue(now)
            if queue is not None:
                return self._take(queue, now)
            pause = self._pausing[0][0] - now if self._pausing else None
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _take(self, queue: NamespaceQueue, now: float) -> Entry:
        entry = cast("Entry", queue.next(self._is_due, has_credit=queue.budget.has_credit(now)))
        if entry.lane is not None:
            queue.lanes.continue_after(entry.order)
        self._withdraw(entry)
        queue.pass_turn()
        entry.tried, entry.explain = self._events, entry.place == "active"
        self._move(entry, "binding")
        self._offer(queue, now)
        return entry

    def _next_queue(self, now: float) -> NamespaceQueue | None:
        """Return the queue whose first pod is next, or None if no pod is due."""
        if self._has_new_events:
            self._has_new_events = False
            self._restart_sweeps(now)
        for queue in tuple(self._indebted.values()):
            if queue.budget.has_credit(now):
                del self._indebted[queue.namespace]
                self._offer(queue, now)
        while self._heads:
            order, queue = heapq.heappop(self._heads)
            if order != queue.offered:
                continue
            queue.offered = None
            if not queue.budget.has_credit(now):
                self._indebted[queue.namespace] = queue
                continue
            first = queue.next(self._is_due, has_credit=True)
            if first is not None and first.order == order:
                return queue
            self._offer(queue, now)
        ready = [each for each in self._indebted.values() if each.next(self._is_due, has_credit=False) is not None]
        return min(ready, key=lambda queue: queue.budget.debt(now), default=None)

    def _restart_sweeps(self, now: float) -> None:
        for queue in tuple(self._namespaces.values()):
            if queue.is_idle(now):
                del self._namespaces[queue.namespace]
                self._indebted.pop(queue.namespace, None)
            else:
                queue.restart_sweep(has_credit=queue.budget.has_credit(now))
                self._offer(queue, now)

    def _offer(self, queue: NamespaceQueue, now: float) -> None:
        """Let the first pod of a namespace compete with those of other namespaces."""
        if queue.namespace in self._indebted:
            return
        first = queue.next(self._is_due, has_credit=queue.budget.has_credit(now))
        order = first.order if first is not None else None
        if order != queue.offered:
            queue.offered = order
            if order is not None:
                heapq.heappush(self._heads, (order, queue))

    def _is_due(self, lane: Lane) -> bool:
        """Whether an event that may help the pods of a lane has happened since one of them was tried."""
        return any(self._last_event.get(event, -1) > lane.tried for event in lane.events)

    def _end_pauses(self, now: float) -> None:
        while self._pausing and self._pausing[0][0] <= now:
            when, _, entry = heapq.heappop(self._pausing)
            if self._entries.get(entry.pod.uid) is not entry or entry.ready_at != when:
                continue
            if entry.place == "backoff" or (entry.place == "unschedulable" and entry.is_stale):
                self._activate(entry)

    def _explain_at(self, entry: Entry, when: float) -> None:
        """Have the reasons of an unschedulable pod computed again at `when`."""
        entry.is_stale, entry.ready_at = True, when
        heapq.heappush(self._pausing, (when, next(self._serial), entry))
        self._changed.set()

    def _explain_next(self, lane: Lane, pods: Iterable[Entry], *, excluding: Entry) -> None:
        """Have reasons computed again for the first of `pods` whose published reasons differ from the lane's."""
        for each in itertools.islice(pods, _SEARCHED):
            if each is not excluding and each.published not in ("", lane.note) and not each.is_stale:
                self._explain_at(each, self.clock() + self._backoff[0])
                return

    # ---- places ----------------------------------------------------------------------------------------------------

    def _pause(self, entry: Entry) -> None:
        entry.ready_at = self.clock() + min(self._backoff[0] * 2 ** min(entry.attempts, 30), self._backoff[1])
        entry.attempts += 1

    def _activate(self, entry: Entry) -> None:
        self._withdraw(entry)
        self._move(entry, "active")
        entry.due_since = now = self.clock()
        queue = self._queue_of(entry)
        queue.active.add(entry)
        self._offer(queue, now)
        self._changed.set()

    def _withdraw(self, entry: Entry) -> None:
        """Remove a pod from the active pods, or from its lane."""
        queue = self._queue_of(entry)
        if entry.lane is not None:
            queue.lanes.remove(entry, entry.lane)
            entry.lane = None
        elif entry.place == "active":
            queue.active.remove(entry)

    def _move(self, entry: Entry, place: Place) -> None:
        self._places[entry.place] -= 1
        self._places[place] += 1
        entry.place = place

    def _queue_of(self, entry: Entry) -> NamespaceQueue:
        namespace = entry.pod.metadata.namespace
        queue = self._namespaces.get(namespace)
        if queue is None:
            queue = self._namespaces[namespace] = NamespaceQueue(namespace)
        return queue
