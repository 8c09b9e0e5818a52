"""Fair sharing: the order of queues by tier and dominant share, and what each may still hold.

Without GpuQueues, all queues have the same rank. Use counts in any case, so that the shares are right as
soon as the first one is created.
"""

import heapq
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import takewhile

from allocation import names, quota
from allocation.fairness import desired, shares
from allocation.fairness.desired import Demand
from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import NOTHING, Amounts, Share, added, dominant
from allocation.ledger.ledger import Ledger
from allocation.quota import UNLIMITED, Headroom
from allocation.reasons import PodReason
from allocation.settings import AllocationSettings
from cluster.gpu_queue import GpuQueue
from scheduler.fairness.capacity import Capacity
from scheduler.fairness.gpu_queues import GpuQueues
from scheduler.fairness.use import UseByOwner
from scheduler.filters.node_cache import NodeCache
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod
from scheduler.queue.queue_order import Rank, WaitingDemand

PodRank = tuple[int, int]
"""The tier of a pod's queue and the priority of the pod, both negated: the smallest is the highest."""


class FairShare:
    """The order of the queues that have pods.

    Attributes:
        queues: the GpuQueues.
        use: what the pods of each queue hold.
        held: what is held for pods of each queue that wait.
        reclaiming: the names of the GpuQueues that may take back what they have less than their entitlement.
        leaving: the UIDs of the pods that are being deleted, among those that are charged.
        capacity: what there is to share.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_cache: NodeCache,
        settings: AllocationSettings,
        of_others: Container[str],
        on_change: Callable[[QueueKey | None], object],
    ) -> None:
        """Count what `ledger` and `node_cache` have, of which the nodes `of_others` are not to be shared here.

        `on_change` is called with a queue whose rank may change, or None for all of them.
        """
        self.queues = GpuQueues(node_cache.namespaces)
        self.use: UseByOwner[QueueKey] = UseByOwner(ledger, on_change=self._changed)
        self.held: UseByOwner[QueueKey] = UseByOwner(ledger, on_change=self._changed)
        self.reclaiming: set[str] = set()
        self.leaving: set[str] = set()
        self.capacity = Capacity(ledger, node_cache, of_others=of_others)
        self._ledger = ledger
        self._node_cache = node_cache
        self._settings = settings
        self._on_change = on_change
        self._limits: dict[str, Headroom] = {}
        self._ranks: dict[QueueKey, Rank] = {}
        self._highest_tier = 0
        """Of all queues; namespaces have queues of tier 0."""
        self._strict: set[str] = set()
        self._by_labels: dict[str, Pod] = {}
        """Pods by UID that are charged as their labels say, or those of their namespaces."""

    # ---- objects ---------------------------------------------------------------------------------------------------

    def set_queue(self, queue: GpuQueue) -> bool:
        """Set the state of a queue; return whether its spec is new."""
        has_changed = self.queues.set(queue)
        if has_changed:
            name = queue.metadata.name
            self._limits[name] = quota.of_object("GpuQueue", name, queue.spec.limits, self._settings)
            if queue.spec.queueing_strategy == "StrictFIFO":
                self._strict.add(name)
            else:
                self._strict.discard(name)
            if queue.spec.reclaim != "Never":
                self.reclaiming.add(name)
            else:
                self.reclaiming.discard(name)
            self._changed_all()
        return has_changed

    def drop_queue(self, queue: GpuQueue) -> None:
        """Forget a queue; its pods keep their cards."""
        self.queues.drop(queue)
        self._limits.pop(queue.metadata.name, None)
        self._strict.discard(queue.metadata.name)
        self.reclaiming.discard(queue.metadata.name)
        self._changed_all()

    def touch(self, node: str) -> None:
        """Note that a node or its cards changed."""
        self.capacity.touch(node)
        if self.queues:
            self._changed_all()

    # ---- pods ------------------------------------------------------------------------------------------------------

    def add_pod(self, pod: Pod) -> QueueKey:
        """Charge a pod, which the ledger and the node cache count, to its queue; return which that is.

        With its Binding it was written which queue pays; a pod without that is charged as its labels say.
        """
        written = _written(pod)
        if written:
            self._by_labels.pop(pod.uid, None)
        else:
            self._by_labels[pod.uid] = pod
        if pod.metadata.deletion_timestamp:
            self.leaving.add(pod.uid)
        key = written or self.key(pod)
        self._count(pod.uid, key)
        return key

    def remove_pod(self, uid: str) -> None:
        """Charge a pod to no queue any more."""
        self._by_labels.pop(uid, None)
        self.leaving.discard(uid)
        self.use.remove_pod(uid)

    def recount_node(self, node: str) -> None:
        """Count the pods of a node again, because it has cards now, or has none any more."""
        for uid in self._node_cache.pods_of(node):
            key = self.use.owner(uid)
            if key is not None:
                self._count(uid, key)

    def set_namespace(self, namespace: str) -> None:
        """Note that the labels of a namespace changed, which may name a queue for its pods."""
        for uid, pod in self._by_labels.items():
            if pod.metadata.namespace == namespace:
                self._count(uid, self.queues.key(pod.metadata.labels, namespace))

    def _count(self, uid: str, key: QueueKey) -> None:
        cpu, memory = self._of_node(uid)
        self.use.add_pod(uid, key, cpu=cpu, memory_bytes=memory)

    def _of_node(self, uid: str) -> tuple[int, int]:
        """Return the CPU and memory that a pod is charged for; they count on nodes with cards only."""
        if self._ledger.row(self._node_cache.node_of(uid)) is None:
            return 0, 0
        return self._node_cache.cpu_and_memory(uid)

    def charges(self, pod: Pod) -> bool:
        """Whether a pod is charged to its queue, with the CPU and memory that it uses."""
        cpu, memory = self._of_node(pod.uid)
        return self.use.counts(pod.uid, _written(pod) or self.key(pod), cpu=cpu, memory_bytes=memory)

    def check_instances(self, key: QueueKey) -> None:
        """Check whether one more pod of a queue may have a node.

        Raises:
            WaitingPodError: the queue has all its instances.
        """
        most = self.queues.spec(key).max_instances
        if most is not None and self.use.of(key).pods >= most:
            why = f"GpuQueue {key.name} has {most} pods with a node, as many as its spec.maxInstances allows"
            raise WaitingPodError(PodReason.PodQuotaNotFit, why)

    def pods_left(self, key: QueueKey) -> int | None:
        """Return how many more pods of a queue may have a node, negative if it has too many; None if any number."""
        most = self.queues.spec(key).max_instances
        return None if most is None else most - self.use.of(key).pods

    def whole_headroom(self, key: QueueKey) -> Headroom:
        """Return what the pods of a queue may reserve together."""
        return self._limits.get(key.name, UNLIMITED)

    def headroom(self, key: QueueKey, *, without: Collection[str] = ()) -> Headroom:
        """Return what the pods of a queue may still reserve, if the pods `without` held no cards."""
        limit = self.whole_headroom(key)
        if not limit.is_limited:
            return UNLIMITED
        use = self.use.of(key, without=without)
        return limit.less(memory_mib=use.memory_mib, cores=use.cores, tflops=use.tflops, cards=use.cards)

    # ---- order -----------------------------------------------------------------------------------------------------

    def key(self, pod: Pod) -> QueueKey:
        """Return the queue that the labels of a pod and its namespace name; it pays for a pod without a node."""
        return self.queues.key(pod.metadata.labels, pod.metadata.namespace)

    def rank(self, key: QueueKey) -> Rank:
        """Return the tier of a queue, negated, and its weighted share."""
        if not self.queues:
            return 0, 0
        rank = self._ranks.get(key)
        if rank is None:
            spec, used, total = self.queues.spec(key), self._charged(key), self.capacity.total()
            rank = self._ranks[key] = (-spec.priority, shares.scaled(used, total, spec.weight))
        return rank

    def pod_rank(self, pod: Pod) -> PodRank:
        """Return the rank of a pod without a node, by which it may have cards that are held for others."""
        return -self.queues.spec(self.key(pod)).priority, -pod.spec.priority

    def share(self, key: QueueKey) -> Share:
        """Return the dominant share of a queue, of which what is held for its pods is a part."""
        return dominant(self._charged(key), self.capacity.total())

    def _charged(self, key: QueueKey) -> Amounts:
        used, held = self.use.amounts_of(key), self.held.amounts_of(key)
        return used if held is NOTHING else added(used, held)

    def is_strict(self, key: QueueKey) -> bool:
        """Whether the younger pods of a queue wait behind the first one."""
        return key.name in self._strict

    def is_blocked(self, key: QueueKey, waiting: Mapping[QueueKey, WaitingDemand]) -> bool:
        """Whether a queue of a higher tier has less than is desired for it, and pods among those `waiting`."""
        return self.blocker(key, waiting) is not None

    def blocker(self, key: QueueKey, waiting: Mapping[QueueKey, WaitingDemand]) -> QueueKey | None:
        """Return the first queue of a higher tier that has less than is desired for it, and pods among those `waiting`.

        What is desired for the queues after it is not computed.
        """
        tier = self.queues.spec(key).priority
        if tier >= self._highest_tier:
            return None
        if not any(self.queues.spec(each).priority > tier for each in waiting):
            return None
        granted = desired.desired(self._demands(tier, waiting), self.capacity.total())
        short = (
            each for each, grant in granted if each in waiting and desired.is_short(self.use.of(each).amounts, grant)
        )
        return next(short, None)

    def _demands(self, tier: int, waiting: Mapping[QueueKey, WaitingDemand]) -> Iterator[Demand]:
        """Iterate over what the queues above a tier hold and wait for, in order of precedence."""
        for key in self._above(tier, waiting):
            spec, use, more = self.queues.spec(key), self.use.of(key), waiting.get(key)
            if more is not None:
                yield Demand(key, spec, added(use.amounts, more.amounts), use.pods + more.pods)
            elif use.pods:
                yield Demand(key, spec, use.amounts, use.pods)

    def _above(self, tier: int, waiting: Collection[QueueKey]) -> Iterator[QueueKey]:
        """Iterate over the queues above a tier, in order of precedence; others than GpuQueues are of tier 0."""
        every: Iterable[QueueKey] = self.queues.by_precedence()
        if tier < 0:
            others = {key for key in (*waiting, *self.use) if self.queues.get(key) is None}
            every = heapq.merge(every, sorted(others, key=self.queues.precedence), key=self.queues.precedence)
        return takewhile(lambda key: self.queues.spec(key).priority > tier, every)

    def _changed(self, key: QueueKey) -> None:
        if self.queues:
            self._ranks.pop(key, None)
            self._on_change(key)

    def _changed_all(self) -> None:
        self._ranks.clear()
        self._highest_tier = max([0, *(each.spec.priority for each in self.queues)])
        self._on_change(None)


def _written(pod: Pod) -> QueueKey | None:
    """Return the queue that was written with the Binding of a pod, if any was."""
    written = pod.metadata.annotations.get(names.CHARGED_TO) if pod.spec.node_name else None
    return QueueKey.of_annotation(written) if written else None
