"""`spec` of a GpuQueue, and which pods belong to it (docs/queues.md)."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Literal

import msgspec

from allocation import names
from allocation.fairness.reclaim import Reclaim
from allocation.label_selector import LabelSelector, accepts, label_selector

Strategy = Literal["BestEffortFIFO", "StrictFIFO"]
Reach = Literal["Cluster", "Queue", "Namespace", "Never"]

_OF_NAMESPACE: Final = "namespace/"
"""Begins the key of a namespace's own queue; the name of a GpuQueue has no slash."""


class PreemptionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Which pods those of a queue may preempt, and how long they are safe themselves.

    Attributes:
        reach: whose pods of lower priority its pods may preempt: those of the cluster, of the queue, of the pod's own
            namespace, or of none.
        min_runtime_seconds: for how long after their start its own pods are not preempted.
    """

    reach: Reach = "Cluster"
    min_runtime_seconds: int = 0


class QueueSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What an administrator says of a queue.

    Attributes:
        weight: its share of the cards while others wait, relative to theirs.
        priority: its tier; queues of a higher tier come first, whatever the shares.
        namespace_selector: the namespaces whose pods may name it; None selects none, an empty one all.
        limits: the most that its pods may hold, by resource in the units of a container; a missing one is unlimited.
        min_instances: the pods for which it claims its entitlement, even if fewer wait or run.
        max_instances: the most pods of it that may run; None is unlimited.
        batch_size: pods that are of use only together; its demand is counted in whole batches.
        resreq: the requirement of a pod that names the queue and no resources (`allocation.fairness.resreq`).
        queueing_strategy: `StrictFIFO` keeps younger pods waiting behind the oldest.
        patience_seconds: how long its first pod waits before cards are held for it; 0 never holds any, None is the
            scheduler's setting.
        preemption: which pods its pods may preempt.
        reclaim: from which queues that have more than their entitlement it takes what it has less than its own.
        reclaim_after_seconds: how long a pod of it waits before it does so.
        suspended: whether new pods wait.
    """

    weight: int = 1
    priority: int = 0
    namespace_selector: LabelSelector | None = None
    limits: Mapping[str, int] = {}
    min_instances: int = 0
    max_instances: int | None = None
    batch_size: int = 1
    resreq: str = ""
    queueing_strategy: Strategy = "BestEffortFIFO"
    patience_seconds: int | None = None
    preemption: PreemptionSpec = PreemptionSpec()
    reclaim: Reclaim = "Never"
    reclaim_after_seconds: int = 300
    suspended: bool = False

    def accepts(self, namespace_labels: Mapping[str, str]) -> bool:
        """Whether the pods of a namespace with these labels may name the queue."""
        return accepts(label_selector(self.namespace_selector), namespace_labels)


FindQueue = Callable[[str], QueueSpec | None]
"""Returns the spec of the GpuQueue with a name, or None if it does not exist."""


class QueueKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Which queue a pod belongs to, and pays for its share.

    Attributes:
        name: the name of a GpuQueue; empty for the own queue of a namespace.
        namespace: empty for a GpuQueue.
    """

    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """Return it as annotation `gpu.scheduling/charged-to` has it."""
        return self.name or _OF_NAMESPACE + self.namespace

    @property
    def words(self) -> str:
        """The queue as messages name it."""
        return f"GpuQueue {self.name}" if self.name else f"namespace {self.namespace}"

    @staticmethod
    def of_annotation(text: str) -> "QueueKey":
        """Read what `str` returns."""
        if text.startswith(_OF_NAMESPACE):
            return _key("", text.removeprefix(_OF_NAMESPACE))
        return _key(text, "")

    @staticmethod
    def of_labels(labels: Mapping[str, str], *, namespace: str, namespace_labels: Mapping[str, str]) -> "QueueKey":
        """Return the queue that a pod names by its labels, or else its namespace does, or else the namespace's own."""
        name = labels.get(names.QUEUE) or namespace_labels.get(names.QUEUE)
        return _key(name, "") if name else _key("", namespace)


def _key(name: str, namespace: str) -> QueueKey:
    """Return a key, the same one for all pods of a queue: it is looked up several times for each pod.

    Manifests that were never admitted may have longer names than any queue: those are not kept.
    """
    make = _kept if len(name) + len(namespace) <= names.MAX_NAME_LENGTH else QueueKey
    return make(name, namespace)


@lru_cache(maxsize=4096)
def _kept(name: str, namespace: str) -> QueueKey:
    return QueueKey(name, namespace)
