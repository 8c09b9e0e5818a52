"""What the statuses of GpuQueues should say, and the events about them."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.settings import AllocationSettings
from cluster.events import Recorder
from cluster.gpu_queue import GpuQueue, GpuQueueStatus
from cluster.metadata import Reference
from cluster.resource import GPU_QUEUES, Resource
from scheduler.fairness import queue_status
from scheduler.fairness.fair_share import FairShare
from scheduler.fairness.standings import Standings
from scheduler.status_writer import Desired


class QueueReporter(msgspec.Struct, frozen=True):
    """Reports the standings of the queues of `fair_share`.

    Attributes:
        fair_share: the queues, and what their pods hold.
        waiting: returns the numbers of their pods without a node.
        settings: the names and units of resources.
        recorder: of the events.
    """

    fair_share: FairShare
    waiting: Callable[[], Mapping[QueueKey, int]]
    settings: AllocationSettings
    recorder: Recorder

    @property
    def resource(self) -> Resource:
        """The kind."""
        return GPU_QUEUES

    def objects(self) -> Iterable[GpuQueue]:
        """Return all queues."""
        return self.fair_share.queues

    def current(self, item: GpuQueue) -> GpuQueue | None:
        """Return a queue as it is now; None if it was deleted."""
        return self.fair_share.queues.get(QueueKey(name=item.metadata.name))

    def shown(self, item: GpuQueue) -> GpuQueueStatus:
        """Return the status that the queue has in the API."""
        return item.status

    def desired(self) -> Desired[GpuQueue, GpuQueueStatus]:
        """Return the function that works out statuses, from the numbers of pods that wait at this moment."""
        standings, named = Standings(self.fair_share, dict(self.waiting())), self.fair_share.queues.named

        def desired(queue: GpuQueue, before: GpuQueueStatus, now: str) -> GpuQueueStatus:
            meta = queue.metadata
            return queue_status.desired(
                standings.of(QueueKey(name=meta.name)),
                namespaces=named[meta.name],
                generation=meta.generation,
                before=before,
                settings=self.settings,
                now=now,
            )

        return desired

    def announce(self, item: GpuQueue, new: GpuQueueStatus, before: GpuQueueStatus) -> None:
        """Record an event if a queue has become overused or underused."""
        meta = item.metadata
        regarding = Reference(GPU_QUEUES.kind, "", meta.name, meta.uid, api_version=GPU_QUEUES.api_version)
        note = f"it has a share of {new.share}, and is entitled to {new.entitlement}; pods that wait: {new.waiting}"
        if queue_status.is_overused(new) and not queue_status.is_overused(before):
            self.recorder.record(regarding, type="Normal", reason="Overused", action="Sharing", note=note)
        if queue_status.is_underused(new) and not queue_status.is_underused(before):
            self.recorder.record(regarding, type="Normal", reason="Underused", action="Sharing", note=note)
