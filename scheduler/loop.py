"""The scheduling loop: take the next pod, schedule it, bind it in the background, handle failures.

Begin reading with `Loop.run`, which names every step of a pod's path.
"""

import asyncio
import logging
from collections.abc import Callable

from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.failure_handler import FailureHandler
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.gang_scheduling.gang_scheduler import GangScheduler
from scheduler.gangs.gang import Gang
from scheduler.metrics.instruments import Metrics
from scheduler.pacing import Pacer
from scheduler.queue.entry import Entry
from scheduler.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)


class Loop:
    """Schedules one pod after another, while Bindings of earlier pods are being written."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        binding_cycle: BindingCycle,
        gangs: GangScheduler,
        failures: FailureHandler,
        metrics: Metrics,
        concurrent_binds: int,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Schedule the pods of `queue`, with at most `concurrent_binds` writes at a time, while `is_trusted`."""
        self._queue = queue
        self._cycle = cycle
        self._binding_cycle = binding_cycle
        self._gangs = gangs
        self._failures = failures
        self._metrics = metrics
        self._is_trusted = is_trusted
        self._slots = asyncio.Semaphore(concurrent_binds)
        self._under_way: dict[asyncio.Task[object], tuple[str, ...]] = {}
        """The UIDs of the pods that each task binds."""

    @property
    def being_bound(self) -> frozenset[str]:
        """The UIDs of the pods whose Bindings are under way."""
        return frozenset(uid for uids in self._under_way.values() for uid in uids)

    async def run(self) -> None:
        """Schedule until cancelled, or until this replica is no longer trusted to lead."""
        pacer, unfinished = Pacer(), self._gangs.unfinished()
        while True:
            await self._slots.acquire()
            try:
                entry = unfinished.pop() if unfinished else await self._queue.pop()
                gang = self._gangs.gang_of(entry.pod)
                if gang is not None and self._is_trusted():
                    await self._schedule_gang(gang, entry, pacer)
                    continue
                result = await self._schedule(entry, pacer) if self._is_trusted() else None
            except BaseException:
                self._slots.release()
                raise
            if not self._is_trusted():
                if isinstance(result, Scheduled):
                    self._cycle.forget(entry.pod)
                return
            if result is None:
                self._queue.reactivate(entry)
                self._slots.release()
            elif isinstance(result, Scheduled):
                takes_long = self._binding_cycle.may_take_long(result)
                work = self._binding_cycle.run(entry.pod, result)
                self._start(entry.pod.uid, work=work, needs_slot=not takes_long)
            else:
                # Before any other task runs: the next event must find the pod in the queue.
                self._failures.unschedulable(entry, result)
                self._slots.release()
            await pacer.rest()

    async def _schedule_gang(self, gang: Gang, entry: Entry, pacer: Pacer) -> None:
        scheduled = await self._gangs.schedule(gang, entry, pacer)
        if scheduled is None:
            self._slots.release()
        elif self._is_trusted():
            uids = (member.pod.uid for member, _ in scheduled.members)
            self._start(*uids, work=self._gangs.bind(scheduled), needs_slot=False)
        else:
            self._gangs.forget(scheduled)
            self._slots.release()
        await pacer.rest()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; return whether none is left."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        return not self._under_way

    def abandon(self) -> None:
        """Cancel the writes under way."""
        for task in self._under_way:
            task.cancel()

    async def _schedule(self, entry: Entry, pacer: Pacer) -> ScheduleResult | None:
        queue, metrics = self._queue, self._metrics
        begin = queue.clock()
        metrics.active_queue_seconds.observe(begin - entry.due_since)
        async with self._cycle.state.decision:
            result = await pacer.run(self._cycle.schedule(entry.pod, explain=entry.explain))
        end = queue.clock()
        queue.charge(entry, pacer.spent, placed=isinstance(result, Scheduled))
        if result is not None:
            metrics.scheduling_seconds.labels(result.path).observe(end - begin)
        if isinstance(result, Scheduled):
            metrics.queue_seconds.observe(end - entry.since)
        return result

    def _start(self, *uids: str, work: "asyncio._CoroutineLike[object]", needs_slot: bool) -> None:
        """Bind pods in the background; unless that needs a slot, it does not count against the concurrent writes."""
        task = asyncio.create_task(work)
        self._under_way[task] = uids
        task.add_done_callback(self._finished)
        if needs_slot:
            task.add_done_callback(lambda _: self._slots.release())
        else:
            self._slots.release()

    def _finished(self, task: asyncio.Task[object]) -> None:
        del self._under_way[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("internal error while a scheduling result was written", exc_info=task.exception())
