"""What the scheduler knows: nodes, cards, and who has what of them, from what the API server shows.

Truth is the inventory of the nodes plus the allocations of the pods that have a node and are not finished; a restart
reads the same truth again. Every change that may cure a waiting pod wakes it.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from allocation import holding
from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.ledger import Ledger
from allocation.names import CORDON, HAMI_HANDSHAKE, HAMI_REGISTER, HAMI_SCORES, SCHEDULER_NAME
from allocation.quota import least_need
from allocation.rejection import Rejection
from allocation.request import PodRequest
from allocation.settings import AllocationSettings
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource_quota import ResourceQuota
from scheduler.fleet import Fleet
from scheduler.heartbeats import Heartbeats, Lease
from scheduler.interest import Interests
from scheduler.inventories import Inventories
from scheduler.mig_wishes import Wishes
from scheduler.objects import Namespace, Node, Pod
from scheduler.plugin_nodes import PluginNodes
from scheduler.queue import Cure, Queue
from scheduler.quotas import Quotas
from scheduler.shortcut import Shortcut

log = logging.getLogger(__name__)

_NODE_KEYS = (HAMI_REGISTER, HAMI_SCORES, HAMI_HANDSHAKE, CORDON)


class State:
    """The ledger, the fleet and the queue, moved together by what happens to pods, nodes and inventories."""

    def __init__(
        self,
        *,
        settings: AllocationSettings,
        queue: Queue,
        clock: Callable[[], float],
        names: Iterable[str] = (SCHEDULER_NAME,),
        has_queue: bool = True,
        mig_wish_seconds: float = 120.0,
    ) -> None:
        """Know nothing yet; `clock` tells the seconds by which the silence of agents is judged.

        Pods with a scheduler name of `names` are ours. They wait in the queue, unless that `has_queue` is False: then
        kube-scheduler has it. An agent has `mig_wish_seconds` to make a MIG instance.
        """
        self.settings = settings
        self.ledger = Ledger()
        counted = settings.resources.count
        self.fleet = Fleet(
            ours=set(settings.resources.managed()) - {counted}, counted=counted, on_change=self.ledger.note_change
        )
        self.queue = queue
        self.names = frozenset(names)
        self.has_queue = has_queue
        self.quotas = Quotas(ledger=self.ledger, settings=settings)
        self.shortcut = Shortcut(ledger=self.ledger, fleet=self.fleet, closed=self.closed)
        self.wishes = Wishes(
            ledger=self.ledger,
            is_waiting=lambda uid: queue.get(uid) is not None,
            clock=clock,
            seconds=mig_wish_seconds,
        )
        self._inventories = Inventories(self.ledger)
        self._heartbeats = Heartbeats(clock=clock)
        self.plugin_nodes = PluginNodes(clock=clock, resource=counted)
        self._interests = Interests()
        self._unaccounted: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def is_ours(self, pod: Pod) -> bool:
        """Whether the scheduler's name of a pod is one of ours."""
        return pod.spec.scheduler_name in self.names

    def closed(self) -> dict[str, str]:
        """Answer the nodes that take no new GPU pod at all now, and why.

        Its agent is silent; it has none and its device plugin is gone; its cards cannot be counted; or a pod that runs
        there and asks for a GPU without an allocation that can be read uses cards that nobody knows.
        """
        uncounted = {node: next(iter(pods.values())) for node, pods in self._unaccounted.items()}
        return self.plugin_nodes.refusals() | self._heartbeats.silences() | self._inventories.refusals | uncounted

    def shut(self, request: PodRequest) -> dict[str, Rejection]:
        """Answer the nodes that `request` cannot have whatever their cards.

        They are closed, or have a device plugin with too few devices left.
        """
        short = self.fleet.shortages(least_need(request).cards)
        return {
            **{node: Rejection(node_reason=reason) for node, reason in short.items()},
            **{node: Rejection(node_reason=reason, resolvable=False) for node, reason in self.closed().items()},
        }

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod, old: Pod | None = None) -> None:
        """Take a pod's present state; `old` is the one that was taken before."""
        if old is not None and _counts_alike(pod, old):
            return
        if pod.finished:
            self.drop_pod(pod)
        elif pod.spec.node_name:
            self._wait_no_longer(pod)
            self._settle(pod)
            if old is not None and old.spec.node_name:
                # It may take less than before, or stand in nobody's way any more.
                self.queue.wake(Cure.CAPACITY)
            elif self._interests.concerns(pod, self.fleet.namespaces):
                self.queue.wake(Cure.NODE)
        elif self.has_queue and self.is_ours(pod):
            if pod.spec.scheduling_gates or pod.metadata.deletion_timestamp:
                self._wait_no_longer(pod)
                self.wishes.review(pod.uid)
            else:
                self.queue.add(pod)
                self._interests.add(pod)
                if old is not None and old.metadata.labels != pod.metadata.labels:
                    self.queue.wake(Cure.NODE)

    def drop_pod(self, pod: Pod) -> None:
        """Give back what a finished or deleted pod had."""
        self._wait_no_longer(pod)
        held = self.ledger.holding(pod.uid)
        self.ledger.release(pod.uid)
        self.quotas.leave(pod.uid, pod.metadata.namespace)
        self.fleet.leave(pod.uid)
        self.wishes.review(pod.uid)
        opened = self._account(pod)
        if held or opened or pod.spec.node_name:
            self.queue.wake(Cure.CAPACITY)

    def _wait_no_longer(self, pod: Pod) -> None:
        self.queue.remove(pod.uid)
        self._interests.remove(pod.uid)

    def _settle(self, pod: Pod) -> None:
        node = pod.spec.node_name
        self.fleet.settle(pod, node)
        try:
            held = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=self.settings)
        except AllocationError as error:
            self._unaccounted[node][pod.uid] = f"pod {pod} runs here uncounted: {error}"
            log.warning("node %s takes no GPU pods: pod %s: %s", node, pod, error)
            return
        self._account(pod)
        if held is not None:
            _, charges = held
            self.ledger.record(pod.uid, node, charges)
            self.wishes.review(pod.uid)
            self.quotas.enter(pod.uid, pod.metadata.namespace)

    def _account(self, pod: Pod) -> bool:
        """Note that a pod is no longer uncounted; whether that opened its node."""
        pods = self._unaccounted.get(pod.spec.node_name, {})
        was_uncounted = pods.pop(pod.uid, None) is not None
        if was_uncounted and not pods:
            del self._unaccounted[pod.spec.node_name]
        return was_uncounted

    # ---- nodes and cards -------------------------------------------------------------------------------------------

    def set_node(self, node: Node, old: Node | None = None) -> None:
        """Take a node's present state; its register annotation counts where no agent of ours reports."""
        if old is not None and _is_alike(node, old):
            return
        self.fleet.set_node(node)
        self.plugin_nodes.set_node(node)
        name, annotations = node.metadata.name, node.metadata.annotations
        self.ledger.set_cordon(name, frozenset(words(annotations.get(CORDON, ""))))
        self._use(self._inventories.register(name, annotations.get(HAMI_REGISTER), annotations.get(HAMI_SCORES, "")))
        self.queue.wake(Cure.NODE | Cure.CAPACITY)

    def drop_node(self, node: Node) -> None:
        """Forget a node. What pods hold there stays known and counts again when it returns."""
        self.fleet.drop_node(node.metadata.name)
        self.plugin_nodes.drop_node(node.metadata.name)
        self._use(self._inventories.register(node.metadata.name, None))
        self.queue.wake(Cure.NODE)

    def set_status(self, status: GpuNodeStatus, _old: GpuNodeStatus | None = None) -> None:
        """Take what an agent reports; it exists for a moment before it says anything."""
        self._heartbeats.expect(status.metadata.name)
        self.plugin_nodes.set_agent(status.metadata.name)
        inventory = status.inventory() if status.status is not None else None
        has_more = self._inventories.report(status.metadata.name, inventory)
        self.wishes.set_status(status)
        self._use(has_more)

    def drop_status(self, status: GpuNodeStatus) -> None:
        """Forget what an agent reported."""
        self._heartbeats.pardon(status.metadata.name)
        self.plugin_nodes.drop_agent(status.metadata.name)
        self._use(self._inventories.report(status.metadata.name, None))
        self.wishes.drop_status(status.metadata.name)

    def set_lease(self, lease: Lease, _old: Lease | None = None) -> None:
        """Take the heartbeat of an agent."""
        self._use(self._heartbeats.set_lease(lease))

    def drop_lease(self, lease: Lease) -> None:
        """Miss a heartbeat from now on."""
        self._heartbeats.drop_lease(lease)

    def set_namespace(self, namespace: Namespace, old: Namespace | None = None) -> None:
        """Take a namespace's labels, by which affinity may choose it."""
        if old is not None and old.metadata.labels == namespace.metadata.labels:
            return
        self.fleet.set_namespace(namespace.metadata.name, namespace.metadata.labels)
        self.queue.wake(Cure.NODE)

    def drop_namespace(self, namespace: Namespace) -> None:
        """Forget a namespace."""
        self.fleet.drop_namespace(namespace.metadata.name)

    def set_quota(self, quota: ResourceQuota, _old: ResourceQuota | None = None) -> None:
        """Take a quota's present state."""
        self.quotas.set_quota(quota)
        self.queue.wake(Cure.CAPACITY)

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        self.quotas.drop_quota(quota)
        self.queue.wake(Cure.CAPACITY)

    def _use(self, has_more: bool) -> None:  # noqa: FBT001 -- the answer of whoever knows
        if has_more:
            self.queue.wake(Cure.CAPACITY)


def _counts_alike(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that is counted or decided by; most updates of a pod are about its containers' state."""
    return (
        pod.finished == old.finished
        and pod.metadata.deletion_timestamp == old.metadata.deletion_timestamp
        and pod.metadata.annotations == old.metadata.annotations
        and pod.metadata.labels == old.metadata.labels
        and pod.spec == old.spec
        and msgspec.structs.replace(pod.status, phase=old.status.phase) == old.status
    )


def _is_alike(node: Node, old: Node) -> bool:
    """Whether nothing changed that a decision reads; most updates of a node are its kubelet's sign of life."""
    return (
        node.metadata.labels == old.metadata.labels
        and all(node.metadata.annotations.get(key) == old.metadata.annotations.get(key) for key in _NODE_KEYS)
        and node.spec == old.spec
        and node.status == old.status
    )
