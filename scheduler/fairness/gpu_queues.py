"""The GpuQueues of the cluster, and which of them a pod belongs to."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from allocation import names
from allocation.fairness.desired import Precedence, precedence
from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.reasons import PodReason
from cluster.gpu_queue import GpuQueue
from scheduler.filters.affinity_terms import Namespaces
from scheduler.gpu_requirements import WaitingPodError

_OWN = QueueSpec()
"""Of a namespace's own queue, and of one that does not exist."""


class GpuQueues:
    """The queues by name."""

    def __init__(self, namespaces: Namespaces) -> None:
        """Look up the labels of namespaces in `namespaces`."""
        self._namespaces = namespaces
        self._queues: dict[str, GpuQueue] = {}
        self._by_precedence: list[QueueKey] = []
        """All of them, or none if one has changed since."""

    def __bool__(self) -> bool:
        """Whether there is any: the first one switches fair sharing on."""
        return bool(self._queues)

    def __len__(self) -> int:
        """Return their number."""
        return len(self._queues)

    def __iter__(self) -> Iterator[GpuQueue]:
        """Iterate over the queues."""
        return iter(tuple(self._queues.values()))

    def set(self, queue: GpuQueue) -> bool:
        """Set the state of a queue; return whether its spec is new."""
        old = self._queues.get(queue.metadata.name)
        self._queues[queue.metadata.name] = queue
        self._by_precedence = []
        return old is None or old.spec != queue.spec

    def drop(self, queue: GpuQueue) -> None:
        """Forget a queue; its pods keep their cards."""
        self._queues.pop(queue.metadata.name, None)
        self._by_precedence = []

    def get(self, key: QueueKey) -> GpuQueue | None:
        """Return a queue; None for the own queue of a namespace, or one that does not exist."""
        return self._queues.get(key.name)

    def spec(self, key: QueueKey) -> QueueSpec:
        """Return what is set for a queue."""
        queue = self._queues.get(key.name)
        return queue.spec if queue is not None else _OWN

    def precedence(self, key: QueueKey) -> Precedence:
        """Return the sort key of a queue among those of all tiers; a namespace's own queue has no age."""
        queue = self._queues.get(key.name)
        return precedence(key, self.spec(key), (queue.metadata.creation_timestamp or "") if queue is not None else "")

    def by_precedence(self) -> Sequence[QueueKey]:
        """Return all GpuQueues, the highest tier first, and of one tier the oldest."""
        if not self._by_precedence:
            self._by_precedence = sorted((QueueKey(name) for name in self._queues), key=self.precedence)
        return self._by_precedence

    @property
    def named(self) -> Counter[str]:
        """How many namespaces name a queue by their label, whether or not it exists."""
        return Counter(name for labels in self._namespaces.values() if (name := labels.get(names.QUEUE)))

    # ---- pods ------------------------------------------------------------------------------------------------------

    def key(self, labels: Mapping[str, str], namespace: str) -> QueueKey:
        """Return the queue that a pod with these labels belongs to."""
        of_namespace = self._namespaces.get(namespace, {})
        return QueueKey.of_labels(labels, namespace=namespace, namespace_labels=of_namespace)

    def check(self, key: QueueKey, namespace: str) -> None:
        """Check whether a new pod of a namespace may be placed for a queue.

        Raises:
            WaitingPodError: the queue does not exist, is not for the namespace, or is suspended.
        """
        if not key.name:
            return
        queue = self._queues.get(key.name)
        if queue is None:
            raise WaitingPodError(
                PodReason.QueueUnknown,
                f"GpuQueue {key.name} does not exist: create it, or change label {names.QUEUE} of the pod or namespace",
            )
        if not queue.spec.accepts(self._namespaces.get(namespace, {})):
            raise WaitingPodError(
                PodReason.QueueForbidden,
                f"GpuQueue {key.name} is not for namespace {namespace}: its spec.namespaceSelector does not match the"
                f" namespace's labels; ask an administrator, or change label {names.QUEUE}",
            )
        if queue.spec.suspended:
            raise WaitingPodError(
                PodReason.QueueSuspended,
                f"GpuQueue {key.name} is suspended: new pods wait until spec.suspended is false",
            )
