"""Indexes and host ports of pods, each of one live pod at a time.

The leader chooses a number, and whoever asked for it writes it into an annotation of the pod. From these annotations
the next leader knows the numbers of all pods. A number that was not written yet is not known to it: so the annotation
has to be there before the number is used.
"""

from collections import Counter
from typing import Final, Protocol

from allocation.errors import AllocationError
from allocation.indexes import Indexes
from allocation.names import HOST_PORT, INDEX
from allocation.ports import Ports
from scheduler.objects import Pod

_DIGITS: Final = 5


class _Numbers(Protocol):
    def assign(self, uid: str) -> int: ...

    def restore(self, uid: str, number: int, /) -> None: ...

    def release(self, uid: str) -> None: ...


class NumberTakenError(AllocationError):
    """A pod has a number in its annotation that is not its own, or may not have one more."""


class Numbers:
    """The numbers of one kind that pods have, by UID. Users write annotations, so a namespace has a bounded part."""

    def __init__(self, numbers: _Numbers, *, key: str, most_per_namespace: int) -> None:
        """Keep the numbers that annotations `key` have."""
        self._numbers = numbers
        self._key = key
        self._most = most_per_namespace
        self._pods: dict[str, Pod] = {}
        self._owners: dict[int, str] = {}
        self._by_uid: dict[str, int] = {}
        self._by_namespace = Counter[str]()
        self._asked: set[str] = set()
        """The pods that have asked: what these have was said, so no other pod can take it."""

    def set_pod(self, pod: Pod) -> None:
        """Keep the number in a pod's annotation, unless an older pod has it or its namespace has too many."""
        if pod.finished:
            self.drop_pod(pod)
            return
        written = self._written(pod)
        if written is None or pod.uid in self._by_uid or not self._has_room(pod):
            return
        owner = self._pods.get(self._owners.get(written, ""))
        if owner is not None and (owner.uid in self._asked or _age(owner) <= _age(pod)):
            return
        if owner is not None:
            self.drop_pod(owner)
        try:
            self._numbers.restore(pod.uid, written)
        except AllocationError:
            return  # it is not in the range
        self._keep(pod, written)

    def drop_pod(self, pod: Pod) -> None:
        """Release the number of a pod that has ended."""
        number = self._by_uid.pop(pod.uid, None)
        if number is not None:
            self._numbers.release(pod.uid)
            del self._owners[number]
            del self._pods[pod.uid]
            self._asked.discard(pod.uid)
            self._by_namespace -= Counter((pod.metadata.namespace,))

    def of(self, pod: Pod) -> int | None:
        """Return the number of a pod; None if it has none."""
        return self._by_uid.get(pod.uid)

    def assign(self, pod: Pod) -> int:
        """Return the number of a live pod, which is a new one unless it has one.

        Raises:
            NumberTakenError: its annotation has a number that is not its own, or its namespace has too many.
            AllocationError: live pods have all numbers.
        """
        own = self.of(pod)
        if own is not None:
            self._asked.add(pod.uid)
            return own
        if self._key in pod.metadata.annotations:
            raise NumberTakenError(
                f"annotation {self._key} of pod {pod} has a number that is another pod's, or not in the range: remove"
                " it, and ask again"
            )
        if not self._has_room(pod):
            raise NumberTakenError(
                f"pods of namespace {pod.metadata.namespace} have {self._most} numbers for annotation {self._key}, as"
                " many as scheduler.assignments.most_per_namespace allows: wait until some end"
            )
        number = self._numbers.assign(pod.uid)
        self._keep(pod, number)
        self._asked.add(pod.uid)
        return number

    def _keep(self, pod: Pod, number: int) -> None:
        self._pods[pod.uid], self._by_uid[pod.uid], self._owners[number] = pod, number, pod.uid
        self._by_namespace[pod.metadata.namespace] += 1

    def _has_room(self, pod: Pod) -> bool:
        return self._by_namespace[pod.metadata.namespace] < self._most

    def _written(self, pod: Pod) -> int | None:
        text = pod.metadata.annotations.get(self._key, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


class Assignments:
    """The indexes and the host ports of the pods of a cluster, for one leader."""

    def __init__(self, *, ports: tuple[int, int], most_per_namespace: int) -> None:
        """Assign ports from the first to before the second."""
        self.indexes = Numbers(Indexes(), key=INDEX, most_per_namespace=most_per_namespace)
        self.ports = Numbers(Ports(*ports), key=HOST_PORT, most_per_namespace=most_per_namespace)

    def set_pod(self, pod: Pod, _old: Pod | None = None) -> None:
        """Keep the numbers of a pod that is new or has changed."""
        for each in (self.indexes, self.ports):
            each.set_pod(pod)

    def drop_pod(self, pod: Pod) -> None:
        """Release the numbers of a pod that has ended."""
        for each in (self.indexes, self.ports):
            each.drop_pod(pod)


def _age(pod: Pod) -> tuple[str, str]:
    """Return what is smaller for an older pod."""
    return pod.metadata.creation_timestamp or "", pod.uid
