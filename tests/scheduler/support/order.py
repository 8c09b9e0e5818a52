"""The order of a cluster without GpuQueues, for queues that are tested apart from the state."""

from collections.abc import Mapping

from allocation.fairness.queue_spec import QueueKey
from scheduler.objects import Pod
from scheduler.queue.queue_order import Rank, WaitingDemand


class NoOrder:
    """No GpuQueue exists: each namespace has a queue of its own, and all have the same rank."""

    def key(self, pod: Pod) -> QueueKey:
        """See QueueOrder."""
        return QueueKey(namespace=pod.metadata.namespace)

    def rank(self, _key: QueueKey) -> Rank:
        """See QueueOrder."""
        return 0, 0

    def is_strict(self, _key: QueueKey) -> bool:
        """See QueueOrder."""
        return False

    def is_blocked(self, _key: QueueKey, _waiting: Mapping[QueueKey, WaitingDemand]) -> bool:
        """See QueueOrder."""
        return False
