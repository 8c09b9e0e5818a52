"""What limits pods beyond nodes and cards: namespaces, GpuQueues and quotas, as the API server shows them.

Each change is passed on to those who count by it, and has pods scheduled again that may be allowed more than before.
"""

from allocation.ledger.ledger import Ledger
from allocation.names import QUEUE
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.resource_quota import ResourceQuota
from scheduler.fairness.fair_share import FairShare
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Namespace
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.quotas import Quotas


class Limits:
    """The handlers of namespaces, GpuQueues, ResourceQuotas and GpuQuotas."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_cache: NodeCache,
        fair_share: FairShare,
        quotas: Quotas,
        queue: SchedulingQueue,
    ) -> None:
        """Update `node_cache`, `fair_share` and `quotas`; note changes in `ledger`, and notify `queue`."""
        self._ledger = ledger
        self._node_cache = node_cache
        self._fair_share = fair_share
        self._quotas = quotas
        self._queue = queue

    def set_namespace(self, namespace: Namespace, old: Namespace | None = None) -> None:
        """Set the labels of a namespace, which affinity terms may select."""
        if old is not None and old.metadata.labels == namespace.metadata.labels:
            return
        self._node_cache.set_namespace(namespace.metadata.name, namespace.metadata.labels)
        was = old.metadata.labels.get(QUEUE) if old is not None else None
        if namespace.metadata.labels.get(QUEUE) != was:
            self._queue_changed(namespace.metadata.name)
        self._queue.notify(ClusterEvent.NAMESPACE_CHANGED)

    def drop_namespace(self, namespace: Namespace) -> None:
        """Forget a namespace. Its pods, of which some may be shown for a moment, have the queue of their labels."""
        self._node_cache.drop_namespace(namespace.metadata.name)
        if QUEUE in namespace.metadata.labels:
            self._queue_changed(namespace.metadata.name)

    def set_queue(self, queue: GpuQueue, _old: GpuQueue | None = None) -> None:
        """Set the state of a GpuQueue."""
        if self._fair_share.set_queue(queue):
            self._limits_changed(ClusterEvent.GPU_QUEUE_CHANGED)

    def drop_queue(self, queue: GpuQueue) -> None:
        """Forget a GpuQueue; its pods keep their cards, and those without cards wait."""
        self._fair_share.drop_queue(queue)
        self._limits_changed(ClusterEvent.GPU_QUEUE_CHANGED)

    def set_quota(self, quota: ResourceQuota, _old: ResourceQuota | None = None) -> None:
        """Set the state of a quota."""
        self._quotas.set_quota(quota)
        self._limits_changed(ClusterEvent.QUOTA_CHANGED)

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        self._quotas.drop_quota(quota)
        self._limits_changed(ClusterEvent.QUOTA_CHANGED)

    def set_gpu_quota(self, quota: GpuQuota, _old: GpuQuota | None = None) -> None:
        """Set the state of a GpuQuota."""
        if self._quotas.set_gpu_quota(quota):
            self._limits_changed(ClusterEvent.QUOTA_CHANGED)

    def drop_gpu_quota(self, quota: GpuQuota) -> None:
        """Forget a GpuQuota."""
        self._quotas.drop_gpu_quota(quota)
        self._limits_changed(ClusterEvent.QUOTA_CHANGED)

    def _queue_changed(self, namespace: str) -> None:
        """Charge the pods of a namespace to another queue; the one that loses them may take others."""
        self._fair_share.set_namespace(namespace)
        self._queue.rekey()
        self._limits_changed(ClusterEvent.GPU_QUEUE_CHANGED)

    def _limits_changed(self, event: ClusterEvent) -> None:
        """Schedule every pod again whose queue or quota may allow it something else now."""
        self._ledger.changes.add_other()
        self._queue.notify(event)
