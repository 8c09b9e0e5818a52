"""In extender mode: the pods that kube-scheduler has, and that no node takes for their cards."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from allocation.steps import Steps
from cluster.informer import Informer
from scheduler.objects import Pod
from scheduler.preemption.waiting_pod import Ranked, WaitingPod, first_of_each

_SECONDS: Final = 600.0
"""For so long a rejection counts; kube-scheduler tries every pod at least each five minutes."""


class RejectedPod(msgspec.Struct, frozen=True):
    """A pod that waits in kube-scheduler's queue.

    Attributes:
        name: its name.
        namespace: its namespace.
        nodes: the nodes that rejected it; kube-scheduler has judged everything but the cards.
        at: when it was rejected.
    """

    name: str
    namespace: str
    nodes: tuple[str, ...]
    at: float


class RejectedPods:
    """The last rejection of each pod, by UID."""

    def __init__(self, pods: Informer[Pod], *, clock: Callable[[], float], most: int) -> None:
        """Look up the pods in `pods`; at most so many pods of a namespace are returned at a time."""
        self._pods = pods
        self._most = most
        self._clock = clock
        self._rejected: dict[str, RejectedPod] = {}

    def note(self, pod: Pod, nodes: tuple[str, ...] | None) -> None:
        """Note which `nodes` rejected a pod for their cards or its quotas; None if a node takes it."""
        if nodes is not None:
            meta = pod.metadata
            self._rejected[pod.uid] = RejectedPod(meta.name, meta.namespace, nodes, self._clock())
        else:
            self._rejected.pop(pod.uid, None)

    def waits(self, pod: Pod) -> bool:
        """Whether a pod still waits for a node."""
        now = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        if now is None or now.uid != pod.uid:
            return False
        return not now.spec.node_name and not now.metadata.deletion_timestamp

    def above(self, priority: int, may: Callable[[WaitingPod], bool]) -> Steps[Iterator[WaitingPod]]:
        """Return the pods above a priority that still wait, the most important first; see WaitingPods."""

        def read(uid: str) -> Ranked | None:
            pod, found = self._find(uid)
            if pod is None or found is None or pod.spec.priority <= priority or pod.metadata.deletion_timestamp:
                return None
            nominated = pod.status.nominated_node_name
            waiting = WaitingPod(pod, uid, (nominated,) if nominated in found.nodes else found.nodes)
            order = (-pod.spec.priority, pod.metadata.creation_timestamp or "", uid)
            return (pod.metadata.namespace, order, waiting) if may(waiting) else None

        return (yield from first_of_each(tuple(self._rejected), read, most=self._most))

    def _find(self, uid: str) -> tuple[Pod | None, RejectedPod | None]:
        """Return a pod and its rejection, which is forgotten if it does not count any more."""
        found = self._rejected.get(uid)
        pod = self._pods.get(found.name, found.namespace) if found is not None else None
        if found is None or pod is None or pod.uid != uid or pod.spec.node_name or self._clock() - found.at > _SECONDS:
            self._rejected.pop(uid, None)
            return None, None
        return pod, found
