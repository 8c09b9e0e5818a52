"""The scheduling queue: highest tier first, then highest priority, then smallest share, then oldest.

Without GpuQueues all tiers and shares are equal. Unschedulable pods wait for an event that may help them.

A pod is *active* (scheduled next), *unschedulable* (until an event that its queueing hint names), in *backoff* (its
Binding failed; it is scheduled again after a pause) or *held* (only a change of the pod itself helps). Lack of capacity
causes no backoff: a freed card is offered to the first pod in order. The cost of an event does not depend on the number
of waiting pods.

The order applies to queues within their budget (`scheduler.queue.budget`); pods of other queues come after.
"""

import asyncio
import copy
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import get_args

from allocation.fairness.queue_spec import QueueKey
from cluster.metadata import unix_seconds
from scheduler.objects import Pod
from scheduler.queue import budget
from scheduler.queue.competition import Competition
from scheduler.queue.entry import Entry, Place, QueuePosition, Rejected
from scheduler.queue.lanes import Lane, Order, offer
from scheduler.queue.queue_order import QueueOrder, WaitingDemand
from scheduler.queue.queueing_hints import ClusterEvent, events_for

_SEARCHED = 64
"""How many equal pods are searched for the next one whose published reasons are out of date."""


class SchedulingQueue:
    """Pods that wait for a node.

    Attributes:
        competition: which of them is tried next.
    """

    def __init__(
        self,
        order: QueueOrder,
        *,
        clock: Callable[[], float],
        first_backoff: float,
        longest_backoff: float,
        may_fit: Callable[[Hashable], bool] = lambda _kind: True,
        on_event: Callable[[Iterable[str]], None] = lambda _: None,
        unix: Callable[[], float] = time.time,
    ) -> None:
        """Order pods by the `order` of their queues; `clock` must be monotonic, and `unix` returns Unix seconds.

        `may_fit` is False for a kind of pods (`Rejected.kind`) that certainly fit nowhere now. `on_event` is called
        after each event, with the UIDs of the pods that it concerns; none if it may concern all.
        """
        self.clock = clock
        self._unix = unix
        self._on_event = on_event
        self.competition = Competition(
            order, may_fit=may_fit, on_skipped=self._note_unexplained, on_separated=self._activate
        )
        self._backoff = (first_backoff, longest_backoff)
        self._entries: dict[str, Entry] = {}
        self._places: dict[Place, int] = dict.fromkeys(get_args(Place), 0)
        self._waiting: Counter[QueueKey] = Counter()
        self._pausing: list[tuple[float, int, Entry]] = []
        self._gated: set[str] = set()
        self._serial = itertools.count()
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

    @property
    def waiting(self) -> Mapping[QueueKey, int]:
        """The number of pods without a node by queue."""
        return self._waiting

    def in_order(self) -> list[Entry]:
        """Return the pods without a node in the order in which a free card is offered to them."""
        rank = self.competition.order.rank
        return sorted(self._entries.values(), key=lambda entry: offer(rank(entry.key), entry.order))

    @property
    def demands(self) -> Mapping[QueueKey, WaitingDemand]:
        """What the pods of each queue require that wait for cards or nodes to become free."""
        return self.competition.demands

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
            entry = self._entry(pod, order)
            self._entries[pod.uid] = entry
            self._waiting[entry.key] += 1
            self._places["binding"] += 1
            self._activate(entry)
            return
        old, new = entry.pod.metadata, pod.metadata
        changed = entry.pod.spec != pod.spec or (old.annotations, old.labels) != (new.annotations, new.labels)
        entry.pod = pod
        self._rekey(entry)
        if changed and entry.place in ("unschedulable", "held"):
            self._activate(entry)

    def _entry(self, pod: Pod, order: Order) -> Entry:
        now, unix = self.clock(), self._unix()
        stamps = pod.unscheduled_since, pod.metadata.creation_timestamp
        # No pod has waited since before it was created, whatever its status says.
        unscheduled = min(unix, max(unix_seconds(each or "") for each in stamps)) if stamps[0] else unix
        return Entry(
            pod,
            self.competition.order.key(pod),
            order,
            since=now,
            unscheduled_since=unscheduled,
            waits_since=now - (unix - unscheduled),
            place="binding",
        )

    def remove(self, uid: str) -> None:
        """Forget a pod that has a node, is finished, or was deleted."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self.competition.withdraw(entry)
            self._places[entry.place] -= 1
            self._leave(entry.key)
            self._changed.set()  # a lower tier may not have to wait any more

    # ---- scheduling failed -----------------------------------------------------------------------------------------

    def add_unschedulable(self, entry: Entry, rejected: Rejected) -> None:
        """Put back a pod that no node takes; it waits for an event that may lift one of the reasons.

        Without a note, the pod is scheduled again, with reasons, when the pause after the last result with reasons is
        over; until then it keeps these reasons, and its demand.
        """
        if self._entries.get(entry.pod.uid) is not entry:
            return
        note, was_stale = rejected.note, entry.is_stale
        if note:
            self._pause(entry)
            entry.is_stale = False
        elif not was_stale:
            self._explain_at(entry, entry.ready_at)
        if rejected.is_held:
            self._move(entry, "held")
            return
        self._move(entry, "unschedulable")
        if note:
            entry.demand = rejected.demand
        lane = self.competition.add_rejected(entry, rejected.kind, events_for(rejected.reasons))
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
        self.delay(entry, entry.ready_at)

    def reactivate(self, entry: Entry) -> None:
        """Put back a pod that changed while it was being scheduled."""
        if self._entries.get(entry.pod.uid) is entry:
            self._activate(entry)

    def take(self, uids: Iterable[str]) -> list[Entry]:
        """Take pods out of their places, to be scheduled together with one that was popped; not those being bound."""
        found = [entry for uid in uids if (entry := self._entries.get(uid)) is not None and entry.place != "binding"]
        for entry in found:
            self.competition.withdraw(entry)
            self._move(entry, "binding")
        return found

    def delay(self, entry: Entry, until: float) -> None:
        """Put back a pod that is scheduled again at a point in time, on the clock of the queue."""
        if self._entries.get(entry.pod.uid) is entry:
            entry.ready_at = until
            self._move(entry, "backoff")
            heapq.heappush(self._pausing, (entry.ready_at, next(self._serial), entry))
            self._changed.set()

    def charge(self, entry: Entry, seconds: float, *, placed: bool) -> None:
        """Charge the queue of a pod for the time that scheduling the pod took."""
        cost = budget.cost(seconds, placed=placed)
        if cost:
            self.competition.charge(entry, cost, self.clock())

    def notify(self, events: ClusterEvent) -> None:
        """Schedule all unschedulable pods again that one of `events` may help."""
        self.competition.notify(events)
        self._changed.set()
        self._on_event(())

    def wake(self, uids: Collection[str]) -> None:
        """Schedule these pods again, because what they require changed although they did not."""
        if not uids:
            return
        self._on_event(uids)
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is None:
                continue
            entry.pod = copy.copy(entry.pod)  # a cycle that began before finds that the pod changed
            if entry.place in ("unschedulable", "held"):
                self._activate(entry)

    def gate(self, uid: str) -> None:
        """Do not schedule a pod until `ungate`, whatever changes; it keeps its place before others."""
        self._gated.add(uid)

    def ungate(self, uid: str) -> None:
        """Schedule a pod again that is gated."""
        self._gated.discard(uid)
        self.wake((uid,))

    # ---- the order of queues changes -------------------------------------------------------------------------------

    def rerank(self, key: QueueKey | None) -> None:
        """Note that the rank of a queue may have changed; None means all queues."""
        self.competition.rerank(key)
        self._changed.set()

    def rekey(self) -> None:
        """Ask again which queue each pod belongs to."""
        for entry in self:
            self._rekey(entry)

    def _leave(self, key: QueueKey) -> None:
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._waiting[key]

    def _rekey(self, entry: Entry) -> None:
        key = self.competition.order.key(entry.pod)
        if key == entry.key:
            return
        is_waiting = entry.place in ("active", "unschedulable")
        self.competition.withdraw(entry)
        self._leave(entry.key)
        self._waiting[key] += 1
        entry.key = key
        if is_waiting:
            self._move(entry, "binding")
            self._activate(entry)

    # ---- the next pod ----------------------------------------------------------------------------------------------

    async def pop(self) -> Entry:
        """Return the next pod to schedule; wait until there is one."""
        while True:
            self._changed.clear()
            entry = self.pop_due()
            if entry is not None:
                return entry
            pause = self._pausing[0][0] - self.clock() if self._pausing else None
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def pop_due(self) -> Entry | None:
        """Return the next pod to schedule, or None if none is due."""
        now = self.clock()
        if self._pausing:
            self._end_pauses(now)
        while (entry := self.competition.next(now)) is not None:
            if self._gated and entry.pod.uid in self._gated:
                self._move(entry, "unschedulable")
                self.competition.add_rejected(entry, None, ())
                continue
            entry.explain = entry.place == "active"
            self._move(entry, "binding")
            return entry
        return None

    def _end_pauses(self, now: float) -> None:
        while self._pausing and self._pausing[0][0] <= now:
            when, _, entry = heapq.heappop(self._pausing)
            if self._entries.get(entry.pod.uid) is not entry or entry.ready_at != when:
                continue
            if entry.place == "backoff" or (entry.place == "unschedulable" and entry.is_stale):
                self._activate(entry)

    def _explain_at(self, entry: Entry, when: float) -> None:
        """Note that the reasons of an unschedulable pod are to be computed again at `when`."""
        entry.is_stale, entry.ready_at = True, when
        heapq.heappush(self._pausing, (when, next(self._serial), entry))
        self._changed.set()

    def _note_unexplained(self, entry: Entry) -> None:
        """Note that the reasons of a pod that fits nowhere are to be computed again when its pause is over."""
        if not entry.is_stale:
            self._explain_at(entry, entry.ready_at)

    def _explain_next(self, lane: Lane, pods: Iterable[Entry], *, excluding: Entry) -> None:
        """Note a new computation for the first of `pods` whose published reasons differ from the lane's."""
        for each in itertools.islice(pods, _SEARCHED):
            if each is not excluding and each.published not in ("", lane.note) and not each.is_stale:
                self._explain_at(each, self.clock() + self._backoff[0])
                return

    # ---- places ----------------------------------------------------------------------------------------------------

    def _pause(self, entry: Entry) -> None:
        entry.ready_at = self.clock() + min(self._backoff[0] * 2 ** min(entry.attempts, 30), self._backoff[1])
        entry.attempts += 1

    def _activate(self, entry: Entry) -> None:
        self.competition.withdraw(entry)
        self._move(entry, "active")
        entry.due_since = now = self.clock()
        self.competition.add_active(entry, now)
        self._changed.set()

    def _move(self, entry: Entry, place: Place) -> None:
        self._places[entry.place] -= 1
        self._places[place] += 1
        entry.place = place
