"""The pods that kube-scheduler has, and that no node takes for their cards, quotas or queue."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from allocation.steps import Steps
from cluster.informer import Informer
from scheduler.extender.turns import Turns
from scheduler.objects import Pod
from scheduler.preemption.waiting_pod import Ranked, WaitingPod, first_of_each

_SECONDS: Final = 600.0
"""How long a rejection counts; kube-scheduler tries every pod at least each five minutes."""


class RejectedPods:
    """The last rejection of each pod: its time, and the nodes that kube-scheduler found right but for their cards."""

    def __init__(self, pods: Informer[Pod], *, clock: Callable[[], float]) -> None:
        """Look up the pods in `pods`."""
        self._pods = pods
        self._clock = clock
        self._rejected: dict[str, tuple[float, WaitingPod]] = {}
        self._turns = Turns()

    @property
    def changes(self) -> int:
        """The number of changes so far after which a pod that was rejected may fit."""
        return self._turns.changes

    def note(self, pod: Pod, nodes: tuple[str, ...] | None, *, since: int) -> None:
        """Note which `nodes` rejected a pod, as the cluster was after `since` changes; None if a node takes it."""
        meta = pod.metadata
        if nodes is not None:
            self._rejected[pod.uid] = self._clock(), WaitingPod(pod, pod.uid, nodes)
            self._turns.set(meta.namespace, pod.uid, since=since)
        else:
            self._rejected.pop(pod.uid, None)
            self._turns.drop(meta.namespace, pod.uid)

    def note_change(self, uids: Iterable[str] = ()) -> None:
        """Note that something changed, above all for the pods `uids`."""
        self._turns.change()
        self.wake(uids)

    def wake(self, uids: Iterable[str]) -> None:
        """Let the pods `uids` be evaluated again, although nothing changed for others."""
        for uid in uids:
            if uid in self._rejected:
                _, each = self._rejected[uid]
                self._turns.set(each.pod.metadata.namespace, uid, since=-1)

    def waits(self, pod: Pod) -> bool:
        """Whether a pod still waits for a node."""
        now = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        if now is None or now.uid != pod.uid:
            return False
        return not now.spec.node_name and not now.metadata.deletion_timestamp

    def waiting(
        self, has_victims: Callable[[Pod], bool], may: Callable[[WaitingPod], bool], most: int
    ) -> Steps[Iterator[WaitingPod]]:
        """Return the pods that still wait and may preempt others, the most important first; namespaces are the queues.

        See WaitingPods.
        """

        def read(uid: str) -> Ranked | None:
            each = self._waiting(uid)
            if each is None or not has_victims(each.pod):
                return None
            pod, nominated = each.pod, each.pod.status.nominated_node_name
            if nominated in (each.nodes or ()):
                each = msgspec.structs.replace(each, nodes=(nominated,))
            order = (-pod.spec.priority, pod.metadata.creation_timestamp or "", uid)
            return (pod.metadata.namespace, order, each) if may(each) else None

        return (yield from first_of_each(tuple(self._rejected), read, most=most))

    def changed(self) -> Iterator[WaitingPod]:
        """Iterate over the pods that still wait and that a change since their rejection may help, each once."""
        for uid in self._turns.due():
            each = self._waiting(uid)
            if each is not None:
                yield each

    def _waiting(self, uid: str) -> WaitingPod | None:
        """Return a rejected pod if it still waits; forget it if it does not any more."""
        if uid not in self._rejected:
            return None
        at, rejected = self._rejected[uid]
        meta = rejected.pod.metadata
        pod = self._pods.get(meta.name, meta.namespace)
        if pod is None or pod.uid != uid or pod.spec.node_name or self._clock() - at > _SECONDS:
            del self._rejected[uid]
            self._turns.drop(meta.namespace, uid)
            return None
        if pod.metadata.deletion_timestamp:
            return None
        return msgspec.structs.replace(rejected, pod=pod)
