"""What becomes of a pod that was not scheduled or not bound: the one place that gives back, records and requeues."""

import asyncio
import logging
from typing import Final

from allocation.reasons import NodeReason
from cluster.api import STRATEGIC_MERGE_PATCH
from cluster.errors import ClusterError, NotFoundError
from cluster.events import Recorder
from cluster.metadata import timestamp
from cluster.resource import PODS
from scheduler.binding.binder import Result
from scheduler.binding.reason_queue import ReasonQueue
from scheduler.claims.users import Reason
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

_WRITERS: Final = 8
"""The conditions that are written at the same time; Bindings do not wait for them."""


class FailureHandler:
    """Handles failures of the loop and of the extender's `/bind` alike."""

    def __init__(
        self, fenced: FencedApi, *, queue: SchedulingQueue, cycle: SchedulingCycle, recorder: Recorder, metrics: Metrics
    ) -> None:
        self._fenced = fenced
        self._queue = queue
        self._cycle = cycle
        self._recorder = recorder
        self._metrics = metrics
        self._reasons = ReasonQueue()

    async def run(self) -> None:
        """Publish the reasons of unschedulable pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._publish_forever())

    def not_bound(self, pod: Pod, scheduled: Scheduled, result: Result) -> None:
        """Release what was reserved for a pod whose Binding failed, and queue it again unless it is gone or taken."""
        fields = {"pod": str(pod), "uid": pod.uid, "outcome": result.outcome.value, "node": scheduled.node}
        log.warning(
            "pod %s was not bound to %s: %s: %s", pod, scheduled.node, result.outcome.value, result.note, extra=fields
        )
        self._cycle.forget(pod)
        self._queue.notify(ClusterEvent.POD_REMOVED)
        if result.outcome is not Outcome.REFUSED:
            return
        lost: Reason = "LeaseConflict" if result.reason == "LeaseConflict" else "BindingRefused"
        self._cycle.state.claims.set_failed(pod.uid, lost, result.note)
        action = "Scheduling" if result.reason == "FailedScheduling" else "Binding"
        self._recorder.record(pod.reference, type="Warning", reason=result.reason, action=action, note=result.note)
        self._queue.requeue(pod.uid)

    def unschedulable(self, entry: Entry, result: Unschedulable) -> None:
        """Put a pod back into the queue that no node takes, and have its reasons published if they are new."""
        self._queue.add_unschedulable(entry, result)
        self._metrics.decisions.labels("unschedulable").inc()
        if result.note not in ("", entry.published):
            entry.published, entry.reasons = result.note, result.reasons
            self._reasons.put(entry, result)

    async def _publish_forever(self) -> None:
        while True:
            entry, result = await self._reasons.get()
            if self._queue.get(entry.pod.uid) is not entry or entry.published != result.note:
                continue
            try:
                await self._publish(entry, result)
            except Exception:
                log.exception("internal error while the reasons of pod %s were published", entry.pod)

    async def _publish(self, entry: Entry, result: Unschedulable) -> None:
        """Write the reasons why a pod is unschedulable into an event and into its condition PodScheduled.

        With other reasons the condition is still False since the same time, from which the next leader counts, too.
        """
        pod, note = entry.pod, result.note
        self._cycle.state.claims.set_waiting(pod.uid, note)
        reasons = ",".join(sorted(result.reasons))
        fields = {"pod": str(pod), "uid": pod.uid, "outcome": "unschedulable", "reasons": reasons}
        log.info("pod %s is unschedulable: %s", pod, note, extra=fields)
        is_used_up = NodeReason.InsufficientGPU.value in result.reasons  # application services look for this event
        self._recorder.record(
            pod.reference,
            type="Warning",
            reason="InsufficientGPU" if is_used_up else "FilteringFailed",
            action="Scheduling",
            note=note,
        )
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": note,
            "lastTransitionTime": timestamp(entry.unscheduled_since),
        }
        status = {"conditions": [condition]}
        try:
            await self._fenced.patch_status(PODS, pod.metadata, status, content_type=STRATEGIC_MERGE_PATCH)
        except NotFoundError:
            return
        except ClusterError as error:
            log.warning("pod %s: its condition was not written: %s", pod, error)
            entry.published = ""
