"""Who is decided next: by priority, then age; who did not fit waits until something may have cured it.

Three places, as in kube-scheduler: *active* (to be decided), *backing off* (woken, but tried a moment ago) and
*waiting* (nothing that could help has happened since). The clock is an argument.
"""

import asyncio
import enum
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from scheduler.objects import Pod


class Cure(enum.Flag):
    """What may make room for a pod that did not fit."""

    NOTHING = 0
    CAPACITY = enum.auto()
    """A pod finished, or a card or node came, grew or recovered."""
    NODE = enum.auto()
    """A node's labels, taints or allocatable changed."""
    EVERYTHING = CAPACITY | NODE


class Entry(msgspec.Struct, eq=False):
    """A pod of ours that has no node yet.

    Attributes:
        pod: its last known state.
        attempts: decisions so far that did not place it.
        cures: what may cure the last failure.
        ready_at: when its pause ends.
        told: the last verdict that was written to its status.
        since: when it was first seen, on the clock of the queue.
        due_since: when it was last put among those to be decided.
        reasons: the codes of what kept it from every node at its last decision.
    """

    pod: Pod
    since: float
    attempts: int = 0
    cures: Cure = Cure.NOTHING
    ready_at: float = 0.0
    told: str = ""
    due_since: float = 0.0
    reasons: frozenset[str] = frozenset()


class Standing(msgspec.Struct, frozen=True):
    """Where a pod without a node stands.

    Attributes:
        place: `active`, to be decided next; `backing off`, after a failed attempt; `waiting` for one of `cures`; or
            `being bound`.
        attempts: decisions so far that did not place it.
        waited_seconds: since it was first seen.
        pause_seconds: until it is tried again, if something may have cured it.
        cures: what may cure the last failure.
    """

    place: Literal["active", "backing off", "waiting", "being bound"]
    attempts: int
    waited_seconds: float
    pause_seconds: float
    cures: tuple[str, ...]


class Queue:
    """Pods that wait for a node."""

    def __init__(self, *, clock: Callable[[], float], first_backoff: float, longest_backoff: float) -> None:
        self.clock = clock
        self._backoff = (first_backoff, longest_backoff)
        self._entries: dict[str, Entry] = {}
        self._active: list[tuple[int, str, int, Entry]] = []
        self._active_uids: set[str] = set()
        self._pausing: list[tuple[float, int, Entry]] = []
        self._waiting: dict[str, Entry] = {}
        self._serial = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Count the pods without a node, those being bound included."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over them."""
        return iter(tuple(self._entries.values()))

    def depths(self) -> dict[str, int]:
        """Count them by where they are; `binding` are those that were given a node."""
        active = len(self._active_uids)
        pausing = sum(self._is_current(entry) for _, _, entry in self._pausing)
        binding = len(self._entries) - active - pausing - len(self._waiting)
        return {"active": active, "backing_off": pausing, "waiting": len(self._waiting), "binding": binding}

    def get(self, uid: str) -> Entry | None:
        """Answer the entry of a pod."""
        return self._entries.get(uid)

    def standing(self, uid: str) -> Standing | None:
        """Answer where a pod stands, None for one that is not here."""
        entry = self._entries.get(uid)
        if entry is None:
            return None
        now = self.clock()
        place: Literal["active", "backing off", "waiting", "being bound"] = "being bound"
        if uid in self._active_uids:
            place = "active"
        elif uid in self._waiting:
            place = "waiting"
        elif any(pausing is entry for _, _, pausing in self._pausing):
            place = "backing off"
        cures = tuple(str(cure.name).lower() for cure in entry.cures) if place == "waiting" else ()
        return Standing(place, entry.attempts, now - entry.since, max(0.0, entry.ready_at - now), cures)

    def add(self, pod: Pod) -> None:
        """Take a pod that is new, or whose own change may be its cure."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = Entry(pod, since=self.clock())
            self._activate(entry)
            return
        changed = entry.pod.spec != pod.spec or entry.pod.metadata.annotations != pod.metadata.annotations
        entry.pod = pod
        if changed and pod.uid in self._waiting:
            del self._waiting[pod.uid]
            self._activate(entry)

    def remove(self, uid: str) -> None:
        """Forget a pod that has a node, is finished, or is gone."""
        self._entries.pop(uid, None)
        self._waiting.pop(uid, None)
        self._active_uids.discard(uid)

    def fail(self, entry: Entry, cures: Cure) -> None:
        """Put back a pod that could not be placed: it waits for one of `cures`, and pauses before the next try."""
        if self._entries.get(entry.pod.uid) is not entry:
            return
        entry.cures = cures
        entry.ready_at = self.clock() + min(self._backoff[0] * 2 ** min(entry.attempts, 30), self._backoff[1])
        entry.attempts += 1
        self._waiting[entry.pod.uid] = entry

    def retry(self, entry: Entry) -> None:
        """Put back a pod whose write failed: no cure is needed, only the pause."""
        self.fail(entry, Cure.EVERYTHING)
        self._wake(entry)

    def wake(self, cure: Cure) -> None:
        """Move every pod that `cure` may help out of waiting."""
        for entry in tuple(self._waiting.values()):
            if entry.cures & cure:
                self._wake(entry)

    async def pop(self) -> Entry:
        """Answer the next pod to decide, waiting for one."""
        while True:
            self._changed.clear()
            now = self.clock()
            while self._pausing and self._pausing[0][0] <= now:
                entry = heapq.heappop(self._pausing)[2]
                if self._is_current(entry):
                    self._activate(entry)
            while self._active:
                entry = heapq.heappop(self._active)[3]
                if entry.pod.uid in self._active_uids and self._is_current(entry):
                    self._active_uids.discard(entry.pod.uid)
                    return entry
            pause = self._pausing[0][0] - now if self._pausing else None
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _is_current(self, entry: Entry) -> bool:
        return self._entries.get(entry.pod.uid) is entry

    def _wake(self, entry: Entry) -> None:
        if self._waiting.pop(entry.pod.uid, None) is None:
            return
        if entry.ready_at <= self.clock():
            self._activate(entry)
        else:
            heapq.heappush(self._pausing, (entry.ready_at, next(self._serial), entry))
            self._changed.set()

    def _activate(self, entry: Entry) -> None:
        if entry.pod.uid in self._active_uids:
            return
        self._active_uids.add(entry.pod.uid)
        entry.due_since = self.clock()
        age = entry.pod.metadata.creation_timestamp or ""
        heapq.heappush(self._active, (-entry.pod.spec.priority, age, next(self._serial), entry))
        self._changed.set()
