"""The GpuQueue that a pod names, or its namespace."""

from collections.abc import Mapping
from typing import Protocol, Self

import msgspec

from allocation import names
from allocation.fairness.queue_spec import FindQueue, QueueKey
from webhook.review import ForbiddenNowError


class Membership(msgspec.Struct, frozen=True):
    """The queue that a pod names, or its namespace.

    Attributes:
        queue: the name of the GpuQueue.
        namespace: of the pod.
        exists: whether the queue exists.
        is_allowed: whether the pods of this namespace may name it.
        is_own: whether the pod itself names it, by a label.
        resreq: what the queue says that a pod requires which requests no resources; empty if nothing.
    """

    queue: str
    namespace: str = ""
    exists: bool = True
    is_allowed: bool = True
    is_own: bool = True
    resreq: str = ""

    @classmethod
    def of_labels(
        cls, labels: Mapping[str, str], namespace: str, *, of_namespace: Mapping[str, str] | None, find_queue: FindQueue
    ) -> Self | None:
        """Return the queue that a pod with these labels names, or its namespace; None if neither names one.

        `of_namespace` are the labels of the namespace. A namespace that is not known (None) is not refused anything:
        the scheduler decides.
        """
        key = QueueKey.of_labels(labels, namespace=namespace, namespace_labels=of_namespace or {})
        if not key.name:
            return None
        queue, is_own = find_queue(key.name), names.QUEUE in labels
        if queue is None:
            return cls(key.name, namespace, exists=False, is_own=is_own)
        is_allowed = of_namespace is None or queue.accepts(of_namespace)
        return cls(key.name, namespace, is_allowed=is_allowed, is_own=is_own, resreq=queue.resreq)

    def check(self) -> None:
        """Check whether the pod may name the queue.

        Raises:
            ForbiddenNowError: the queue is not for its namespace.
        """
        if self.exists and not self.is_allowed:
            who = "pod" if self.is_own else f"namespace {self.namespace}"
            raise ForbiddenNowError(
                f"label {names.QUEUE} of the {who} names GpuQueue {self.queue}, whose spec.namespaceSelector does not"
                f" match namespace {self.namespace}: name another queue, or ask an administrator of the cluster"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the pod's creator."""
        if self.exists:
            return ()
        return (f"GpuQueue {self.queue} does not exist: the pod waits until it does (see 'kubectl get gpuqueues')",)


class MembershipLookup(Protocol):
    """Where admission finds the queue of a pod."""

    def of_pod(self, labels: Mapping[str, str], namespace: str) -> Membership | None:
        """Return the queue that a pod with these labels names, or its namespace; None if neither names one."""
