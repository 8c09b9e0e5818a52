"""In extender mode: the pods that kube-scheduler has, and that no node takes for their cards."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from cluster.informer import Informer
from scheduler.objects import Pod
from scheduler.preemption.waiting_pod import WaitingPod

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

    def __init__(self, pods: Informer[Pod], *, clock: Callable[[], float]) -> None:
        """Look up the pods in `pods`."""
        self._pods = pods
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

    def above(self, priority: int) -> Iterator[WaitingPod]:
        """Iterate over the pods above a priority that still wait, the most important first."""
        waiting = []
        for uid, each in tuple(self._rejected.items()):
            pod = self._pods.get(each.name, each.namespace)
            if pod is None or pod.uid != uid or pod.spec.node_name or self._clock() - each.at > _SECONDS:
                del self._rejected[uid]
            elif pod.spec.priority > priority and not pod.metadata.deletion_timestamp:
                nominated = pod.status.nominated_node_name
                waiting.append(WaitingPod(pod, uid, (nominated,) if nominated in each.nodes else each.nodes))
        waiting.sort(key=lambda each: (-each.pod.spec.priority, each.pod.metadata.creation_timestamp or "", each.kind))
        yield from waiting
