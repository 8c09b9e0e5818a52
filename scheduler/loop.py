"""The scheduler at work: take the next pod, decide, bind in the background, say what happened."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from cluster.api import Api
from cluster.errors import ClusterError, NotFoundError
from cluster.events import Recorder
from cluster.resource import PODS
from scheduler import cycle
from scheduler.binder import Outcome
from scheduler.commitment import Committer
from scheduler.cycle import Chosen, Decision, Waiting
from scheduler.metrics import Metrics
from scheduler.queue import Entry
from scheduler.state import State

log = logging.getLogger(__name__)

_STRATEGIC = "application/strategic-merge-patch+json"


class Loop:
    """Decides one pod after the other; Bindings of earlier ones are under way meanwhile."""

    def __init__(
        self,
        *,
        api: Api,
        state: State,
        committer: Committer,
        recorder: Recorder,
        metrics: Metrics,
        concurrent_binds: int,
        is_trusted: Callable[[], bool],
    ) -> None:
        self._api = api
        self._state = state
        self._committer = committer
        self._recorder = recorder
        self._metrics = metrics
        self._is_trusted = is_trusted
        self._slots = asyncio.Semaphore(concurrent_binds)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Decide until cancelled, or until we are no longer trusted to lead."""
        while True:
            await self._slots.acquire()
            try:
                entry = await self._state.queue.pop()
            except BaseException:
                self._slots.release()
                raise
            if not self._is_trusted():
                return
            decision = self._decide(entry)
            if isinstance(decision, Waiting):
                entry.reasons = decision.reasons
                # Before anything else may run: a cure that comes meanwhile must find the pod waiting.
                self._state.queue.fail(entry, decision.cures)
                self._start(self._tell(entry, decision))
            else:
                self._start(self._bind(entry, decision), queues=self._committer.queues(decision))

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; answer whether none is left."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        return not self._under_way

    def abandon(self) -> None:
        """Give up the writes under way."""
        for task in self._under_way:
            task.cancel()

    def _decide(self, entry: Entry) -> Decision:
        queue, metrics = self._state.queue, self._metrics
        begin = queue.clock()
        metrics.attempt_wait_seconds.observe(begin - entry.due_since)
        decision = cycle.decide(self._state, entry.pod)
        end = queue.clock()
        metrics.decide_seconds.labels(decision.way).observe(end - begin)
        if isinstance(decision, Chosen):
            metrics.queue_seconds.observe(end - entry.since)
        return decision

    def _start(self, work: "asyncio._CoroutineLike[None]", *, queues: bool = False) -> None:
        """Do `work` in the background; one that queues for its node keeps no other from starting."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._finished)
        if queues:
            self._slots.release()
        else:
            task.add_done_callback(lambda _: self._slots.release())

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a decision was not carried out", exc_info=task.exception())

    async def _tell(self, entry: Entry, decision: Waiting) -> None:
        """Write down why a pod waits, once for each new answer."""
        pod = entry.pod
        self._metrics.decisions.labels("waiting").inc()
        if entry.told == decision.note:
            return
        entry.told = decision.note
        fields = {"pod": str(pod), "uid": pod.uid, "outcome": "waiting", "reasons": ",".join(sorted(decision.reasons))}
        log.info("pod %s waits: %s", pod, decision.note, extra=fields)
        self._recorder.record(
            pod.reference, type="Warning", reason="FilteringFailed", action="Scheduling", note=decision.note
        )
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": decision.note,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="status")
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        try:
            await self._api.request("PATCH", path, body=body, content_type=_STRATEGIC)
        except NotFoundError:
            return
        except ClusterError as error:
            log.warning("pod %s: its condition was not written: %s", pod, error)
            entry.told = ""

    async def _bind(self, entry: Entry, chosen: Chosen) -> None:
        result = await self._committer.commit(entry.pod, chosen)
        if result.outcome is Outcome.REFUSED:
            self._state.queue.retry(entry)
