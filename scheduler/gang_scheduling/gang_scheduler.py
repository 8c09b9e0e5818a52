"""Schedules the gang of a pod whose turn it is: all its pods that wait, in one decision, and binds them.

The queue's order is that of single pods: the first pod of a gang leads the others, whatever their places are. If the
gang is rejected, its pods wait as one kind: an event that may help one of them has the gang decided once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from allocation.gang import MOST_MEMBERS
from allocation.reasons import PodReason
from cluster.events import Recorder
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.failure_handler import FailureHandler
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import waiting
from scheduler.gang_scheduling.gang_binding import PATIENCE_SECONDS, GangBinding, Member
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.gangs.gang import Gang
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import GangOutcome, Outcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.queue.entry import Entry
from scheduler.settings import GangSettings

log = logging.getLogger(__name__)

_SILENT_SECONDS: Final = 1.0
"""The time in which a controller creates the pods of a gang; nothing is published meanwhile."""


class GangScheduler:
    """Schedules one gang at a time, while the Bindings of earlier ones are being written."""

    def __init__(
        self,
        cycle: SchedulingCycle,
        *,
        binding_cycle: BindingCycle,
        failures: FailureHandler,
        recorder: Recorder,
        metrics: Metrics,
        settings: GangSettings,
        concurrent_binds: int,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Decide by `cycle`, and bind each pod by `binding_cycle`, at most `concurrent_binds` at the same time."""
        self._state = cycle.state
        self._gang_cycle = GangCycle(cycle)
        self._cycle = cycle
        self._binding = GangBinding(
            binding_cycle, recorder=recorder, concurrent=concurrent_binds, is_trusted=is_trusted
        )
        self._failures = failures
        self._metrics = metrics
        self._backoff = settings.backoff_seconds

    def gang_of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod that gets a node only together with others; None for a pod by itself."""
        return self._state.gangs.of(pod.uid) if self._state.gangs.waits_for_others(pod) else None

    def unfinished(self) -> list[Entry]:
        """Return of each gang of which only some pods have nodes one pod that waits; an earlier leader bound the rest.

        They come first in a term, while what was free then is still free.
        """
        queue = self._state.queue
        partial = (gang for gang in self._state.gangs if gang.is_partial and gang.is_complete)
        found = (queue.take(list(gang.waiting)[:1]) for gang in sorted(partial, key=lambda gang: gang.key))
        return [entry for entries in found for entry in entries]

    async def schedule(self, gang: Gang, entry: Entry, pacer: Pacer) -> ScheduledGang[Entry] | None:
        """Reserve nodes for a gang of which a pod was popped, or put its pods back; return what was reserved.

        What was reserved has to be bound, or forgotten, before anything else is decided for the gang.
        """
        queue = self._state.queue
        if gang.unready:
            self._wait(gang, entry)
            return None
        if queue.clock() < gang.pause_until:
            queue.delay(entry, gang.pause_until)
            return None
        entries = [entry, *queue.take(uid for uid in tuple(gang.waiting)[:MOST_MEMBERS] if uid != entry.pod.uid)]
        begin = queue.clock()
        self._metrics.active_queue_seconds.observe(begin - entry.due_since)
        async with self._state.turn:
            found = await pacer.run(self._gang_cycle.schedule(gang, entries, explain=entry.explain))
            is_scheduled = isinstance(found, ScheduledGang)
            gang.is_committing = is_scheduled
        self._metrics.gang_seconds.observe(queue.clock() - begin)
        queue.charge(entry, pacer.spent, placed=is_scheduled)
        if found is None:
            for each in entries:
                queue.reactivate(each)
        elif isinstance(found, RejectedGang):
            self._count(GangOutcome.REJECTED)
            await self._reject(gang, entries, found, pacer)
        else:
            self._note_places(found)
            return found
        return None

    async def bind(self, scheduled: ScheduledGang[Entry]) -> None:
        """Bind the pods of a gang for which nodes are reserved."""
        members = [Member(entry.pod, chosen) for entry, chosen in scheduled.members]
        gang, queue, bound = scheduled.gang, self._state.queue, 0
        try:
            results = await self._binding.run(
                str(gang.key), members, needed=scheduled.needed, patience=gang.timeout or PATIENCE_SECONDS
            )
            bound = sum(each.outcome is Outcome.BOUND for each in results.values())
        finally:
            gang.is_committing = False
        self._count(GangOutcome.BOUND if bound >= scheduled.needed else GangOutcome.REFUSED)
        if bound < len(members):
            gang.pause_until = queue.clock() + self._backoff
        for entry in queue.take(list(gang.waiting)):
            queue.reactivate(entry)

    def forget(self, scheduled: ScheduledGang[Entry]) -> None:
        """Release what was reserved for a gang that will not be bound."""
        for entry, _ in scheduled.members:
            self._cycle.forget(entry.pod)

    # ---- pods that are put back ------------------------------------------------------------------------------------

    def _wait(self, gang: Gang, entry: Entry) -> None:
        """Put back a pod that waits for other pods of its gang; at first it waits without a word."""
        if self._state.queue.clock() < entry.since + _SILENT_SECONDS:
            self._state.queue.delay(entry, entry.since + _SILENT_SECONDS)
            return
        result = waiting(PodReason.GangIncomplete, gang.unready)
        self._failures.unschedulable(entry, msgspec.structs.replace(result, kind=_kind(gang)))

    async def _reject(self, gang: Gang, entries: Sequence[Entry], found: RejectedGang, pacer: Pacer) -> None:
        """Put back the pods of a gang, which wait for what may help the one that has no place."""
        why, note = found.result, found.note(gang)
        for entry in entries:
            result = msgspec.structs.replace(
                why,
                note=note,
                kind=_kind(gang),
                demand=self._cycle.demand(entry.pod) if why.demand is not None else None,
            )
            self._failures.unschedulable(entry, result)
            await pacer.rest()

    def _count(self, outcome: GangOutcome) -> None:
        self._metrics.gang_outcomes.labels(outcome.value).inc()

    def _note_places(self, found: ScheduledGang[Entry]) -> None:
        now = self._state.queue.clock()
        for entry, _ in found.members:
            self._metrics.queue_seconds.observe(now - entry.since)
        for entry, rejected in found.rejected:
            self._failures.unschedulable(entry, rejected)


def _kind(gang: Gang) -> tuple[str, str, str]:
    """Return the kind of the pods of a gang: what rejects one rejects all."""
    return "gang", gang.key.namespace, gang.key.name
