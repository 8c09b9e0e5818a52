"""The state of the cluster as the scheduler knows it: nodes, their cards, and the pods that use them.

The truth is in the API server: the inventories of the nodes, and the allocations of the pods that have a node and are
not finished. A restarted scheduler reads the same truth. The queue is notified of every change that may make an
unschedulable pod schedulable.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from allocation.allocation import Allocation
from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from allocation.names import CORDON, HAMI_REGISTER, HAMI_SCORES, HAND_OVER_NAME, SCHEDULER_NAMES
from allocation.settings import AllocationSettings
from cluster.dra import DeviceClass
from cluster.gpu_claim import GpuClaim
from cluster.lease import Lease
from scheduler.bindings.app_bindings import AppBindings
from scheduler.claims.claims import Claims
from scheduler.dra.device_classes import DeviceClasses
from scheduler.dra.foreign import DoubleBooking, ForeignDevices
from scheduler.dra.node_allocators import NodeAllocators
from scheduler.fairness.fair_share import FairShare
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.node_filter import NodeFilter
from scheduler.filters.node_rejections import NodeRejections
from scheduler.gangs.pod_groups import PodGroups
from scheduler.holds import Hold, Holds
from scheduler.leases.device_lease import DeviceLease
from scheduler.leases.device_leases import DeviceLeases
from scheduler.mig.requests import InstanceRequests
from scheduler.objects import Node, Pod
from scheduler.queue.affinity_hints import AffinityHints
from scheduler.queue.queue_order import QueueOrder
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import NETWORK_LEVELS, ScoreWeights
from scheduler.state import participants
from scheduler.state.agent_leases import AgentLeases
from scheduler.state.agent_reports import AgentReports
from scheduler.state.allocated_time import AllocatedTime
from scheduler.state.closed_nodes import ClosedNodes
from scheduler.state.deliveries import Deliveries
from scheduler.state.inventories import Inventories
from scheduler.state.limits import Limits
from scheduler.state.node_problems import NodeProblems
from scheduler.state.plugin_nodes import PluginNodes
from scheduler.state.priority_classes import PriorityClasses
from scheduler.state.quotas import Quotas
from scheduler.state.rejected_nodes import RejectedNodes
from scheduler.state.requirements import Requirements
from scheduler.state.running_allocation import running_allocation
from scheduler.state.storage import Storage
from scheduler.state.turns import Turns
from scheduler.state.uncounted_pods import UncountedPods
from scheduler.state.updates import are_nodes_alike, are_pods_alike
from scheduler.state.workload import Workload
from scheduler.volumes.volume_cache import VolumeCache


class ClusterState(Turns):
    """The ledger, the node cache and the queue, updated together when pods, nodes or inventories change.

    Attributes:
        running: the pods that have a node and are not finished, by UID.
        handed_over: the pods without a node that the loop leaves to kube-scheduler, by UID.
        resized_to: the sizes that are about to be written of some of them, by UID.
        requested_nodes: the rejections by nodes that the expander asked for, until its requests for them have ended.
        tried: the UIDs of the pods that are assumed only to see whether they fit; `scheduler.state.trial` fills it.
    """

    def __init__(
        self,
        *,
        settings: AllocationSettings,
        make_queue: Callable[[QueueOrder], SchedulingQueue],
        clock: Callable[[], float],
        names: Iterable[str] = SCHEDULER_NAMES,
        has_queue: bool = True,
        mig_request_timeout_seconds: float = 120.0,
        on_uncounted: Callable[[Pod, str], None] = lambda _pod, _why: None,
        foreign_drivers: Iterable[str] = (),
        on_device_class: Callable[[DeviceClass], object] = lambda _: None,
        on_double_booked: Callable[[DoubleBooking], object] = lambda _: None,
        scores_resources: bool = False,
        stranded: float = ScoreWeights().stranded,
        network_levels: Sequence[str] = NETWORK_LEVELS,
        reads_pod_groups: bool = False,
    ) -> None:
        """Begin with an empty state; `clock`, in seconds, must be monotonic.

        `make_queue` returns the queue of pods, given the order of their queues. Pods with a scheduler name of `names`
        are ours; they wait in the queue if `has_queue`, otherwise kube-scheduler has it. An agent has
        `mig_request_timeout_seconds` to create a MIG instance. `on_uncounted` is called once for each pod that closes
        its node, with the reason. Devices of DRA drivers `foreign_drivers` count; `on_double_booked` is called for
        those that pods have already, and `on_device_class` for each DeviceClass that satisfies a resource of ours.
        `scores_resources` if nodes are scored by their CPU and memory; a stranded card counts `stranded` points. The
        labels `network_levels` name network blocks. A pod waits for its PodGroup if the scheduler `reads_pod_groups`.
        """
        super().__init__()
        self.settings = settings
        self.ledger = Ledger(settings.sharing)
        counted = settings.resources.count
        self.volumes = VolumeCache(
            on_change=lambda node: self.ledger.note_change(node, taken=False),
            on_release=lambda uid: self._offer_released(uid, ClusterEvent.STORAGE_CHANGED),
        )
        self.storage = Storage(
            self.volumes,
            on_change=self.ledger.changes.add_other,
            on_improvement=lambda: self.queue.notify(ClusterEvent.STORAGE_CHANGED),
        )
        self.node_cache = NodeCache(
            ours=set(settings.resources.managed()) - {counted},
            counted=counted,
            on_change=self.ledger.note_change,
            scores_resources=scores_resources,
            network_levels=network_levels,
        )
        self.gangs = self.node_cache.gangs
        # kube-scheduler, if it has the queue, has filtered the nodes by volumes.
        volumes = self.volumes if has_queue else None
        self.node_filter = NodeFilter(self.node_cache, volumes=volumes)
        self.names, self.has_queue = frozenset(names), has_queue
        self.tried: set[str] = set()
        self.claims, self.priority_classes = Claims(), PriorityClasses()
        self.bindings = AppBindings(
            ledger=self.ledger,
            settings=settings.bindings,
            on_change=lambda uids: self.queue.wake(uids),  # noqa: PLW0108 -- the queue is made later
        )
        self.quotas = Quotas(ledger=self.ledger, settings=settings)
        self._uncounted = UncountedPods(on_uncounted)
        self.node_allocators = NodeAllocators(self.ledger, uncounted=self._uncounted.rejections)
        self.node_allocators.rejections.follow(self._touch)
        self.fair_share = FairShare(
            ledger=self.ledger,
            node_cache=self.node_cache,
            settings=settings,
            of_others=self.node_allocators.rejections,
            on_change=lambda key: self.queue.rerank(key),  # noqa: PLW0108 -- the queue is made next
        )
        self.queue = make_queue(self.fair_share)
        self.pod_groups = PodGroups(self.gangs, reads=reads_pod_groups, has_queue=has_queue, on_change=self.queue.wake)
        self.holds = Holds(self.ledger, self.node_cache, self.fair_share.held)
        self.instance_requests = InstanceRequests(
            ledger=self.ledger,
            is_waiting=lambda uid: self.queue.get(uid) is not None,
            clock=clock,
            seconds=mig_request_timeout_seconds,
        )
        self.device_leases = DeviceLeases(
            ledger=self.ledger, on_open=lambda: self.queue.notify(ClusterEvent.POD_REMOVED)
        )
        self.device_classes = DeviceClasses(
            settings.resources.managed(),
            on_found=on_device_class,
            on_ended=lambda: self.queue.notify(ClusterEvent.DEVICE_CLASS_CHANGED),
        )
        self.foreign_devices = ForeignDevices(
            foreign_drivers,
            ledger=self.ledger,
            on_release=lambda: self.queue.notify(ClusterEvent.POD_REMOVED),
            on_double_booked=on_double_booked,
        )
        self.requirements = Requirements(
            settings,
            ledger=self.ledger,
            gangs=self.gangs,
            pod_groups=self.pod_groups,
            claims=self.claims,
            bindings=self.bindings,
            quotas=self.quotas,
            fair_share=self.fair_share,
        )
        self.allocated_time = AllocatedTime(self.ledger, queue_of=self.fair_share.use.owner, clock=clock)
        self.workload = Workload(self.ledger, self.node_cache, settings, points=stranded)
        # The parts that count pods with a node, in order: another one is added here, and nowhere else.
        self.participants = participants.Participants(
            participants.Cards(self.ledger, self.device_leases, self.instance_requests),
            participants.NamespaceQuotas(self.quotas),
            participants.NodeResources(self.node_cache),
            self.workload,
            *((participants.Volumes(self.volumes, self.node_cache),) if volumes is not None else ()),
            participants.QueueShares(self.fair_share, self.is_ours),
            self.allocated_time,
            participants.CardLeases(self.device_leases),
        )
        self._inventories = Inventories(self.ledger, models=settings.models, on_change=self._recount_cards)
        self.agent_leases = AgentLeases(clock=clock)
        self.deliveries, self.node_problems = Deliveries(), NodeProblems()
        self.plugin_nodes = PluginNodes(clock=clock, resource=counted)
        self.agent_reports = AgentReports(
            inventories=self._inventories,
            agent_leases=self.agent_leases,
            plugin_nodes=self.plugin_nodes,
            deliveries=self.deliveries,
            node_problems=self.node_problems,
            node_allocators=self.node_allocators,
            instance_requests=self.instance_requests,
            queue=self.queue,
        )
        self.requested_nodes = NodeRejections()
        # What closes nodes, in order: the last of several reasons is shown. Another one is added here.
        self.closed_nodes = ClosedNodes(
            self.plugin_nodes.rejections,
            self.deliveries.rejections,
            self.node_problems.rejections,
            self.agent_leases.rejections,
            self._inventories.rejections,
            self.foreign_devices.rejections,
            self._uncounted.rejections,
            self.node_allocators.rejections,
            self.requested_nodes,
            timed=(self.plugin_nodes, self.agent_leases),
            clock=clock,
            on_change=partial(self.ledger.note_change, taken=False),
            on_open=lambda: self.queue.notify(ClusterEvent.NODE_OPENED),
        )
        self.rejected_nodes = RejectedNodes(
            ledger=self.ledger,
            node_filter=self.node_filter,
            closed_nodes=self.closed_nodes,
            deliveries=self.deliveries,
            plugin_nodes=self.plugin_nodes,
        )
        self.limits = Limits(
            ledger=self.ledger,
            node_cache=self.node_cache,
            fair_share=self.fair_share,
            quotas=self.quotas,
            queue=self.queue,
        )
        self._affinity_hints = AffinityHints()
        self.running: dict[str, Pod] = {}
        self.handed_over: dict[str, Pod] = {}
        self.resized_to: dict[str, Allocation] = {}

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod is for this scheduler, by its scheduler name."""
        return pod.spec.scheduler_name in self.names

    def is_external(self, pod: Pod) -> bool:
        """Whether kube-scheduler has a pod of ours in its queue: in extender mode each, else one handed over to it."""
        return not self.has_queue or self.is_handed_over(pod)

    def is_handed_over(self, pod: Pod) -> bool:
        """Whether the loop leaves a pod to kube-scheduler, because of the pod's `resourceClaims`."""
        return self.has_queue and self.settings.hands_over and pod.spec.scheduler_name == HAND_OVER_NAME

    def unsupported(self, pod: Pod) -> str:
        """Return a field of a pod that the loop does not evaluate; empty if none, or if kube-scheduler has the pod."""
        return "" if self.is_external(pod) else self.requirements.unsupported(pod)

    def may_wait(self, pod: Pod) -> bool:
        """Whether a pod may still wait for a node; in extender mode nothing here says so, and each may."""
        if self.is_handed_over(pod):
            return pod.uid in self.handed_over
        return not self.has_queue or self.queue.get(pod.uid) is not None

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod, old: Pod | None = None) -> None:
        """Set the state of a pod; `old` is its previous state."""
        if old is not None and are_pods_alike(pod, old):
            self._show(pod)
            return
        if pod.finished:
            self.drop_pod(pod)
            self.gangs.set_finished(pod)
            return
        if self.is_ours(pod):
            self.claims.set_pod(pod)
        self.queue.wake(self.bindings.set_pod(pod))
        if pod.spec.node_name:
            self._dequeue(pod)
            self._count(pod)
            if old is not None and old.spec.node_name:
                # It may use less than before, or its labels may match other selectors.
                self.queue.notify(ClusterEvent.POD_REMOVED | ClusterEvent.POD_ADDED)
            elif self._affinity_hints.may_unblock(pod, self.node_cache.namespaces):
                self.queue.notify(ClusterEvent.POD_ADDED)
        elif self.is_ours(pod):
            if pod.spec.scheduling_gates or pod.metadata.deletion_timestamp:
                self._dequeue(pod)
                self.instance_requests.refresh(pod.uid)
            else:
                self.gangs.set_waiting(pod)
                self._enqueue(pod, old)

    def _enqueue(self, pod: Pod, old: Pod | None) -> None:
        if self.is_handed_over(pod):
            self.handed_over[pod.uid] = pod
        if self.is_external(pod):
            return
        self.queue.add(pod)
        self._affinity_hints.add(pod)
        if old is not None and old.metadata.labels != pod.metadata.labels:
            self.queue.notify(ClusterEvent.POD_ADDED)

    def drop_pod(self, pod: Pod) -> None:
        """Release what a finished or deleted pod held."""
        self.gangs.forget(pod.uid)
        self._dequeue(pod)
        self.running.pop(pod.uid, None)
        self.claims.drop_pod(pod.uid)
        self.queue.wake(self.bindings.drop_pod(pod.uid))
        held = self.ledger.reservation(pod.uid)
        self.participants.unreserve(pod.uid)
        self._uncounted.remove(pod)
        if held or pod.spec.node_name:
            self.queue.notify(ClusterEvent.POD_REMOVED)

    def assume(self, placed: participants.Placed, *, lift: Collection[str] = ()) -> None:
        """Count a pod that is about to be bound.

        Before that, its hold is released, and of the reservations `lift` those on what it takes. A hold does not come
        back if the pod is not bound.
        """
        uid = placed.pod.uid
        own = self.holds.release(uid)
        released = [] if own is None else [own]
        if placed.allocation is not None and lift:
            released += self.holds.release_taken(lift, placed.node, placed.charges)
            self.instance_requests.release_reserved(uid)
        self.participants.reserve(placed)
        if any(hold.frees(placed.node, placed.charges) for hold in released):
            self._offer_released(uid, ClusterEvent.POD_REMOVED)

    def _offer_released(self, uid: str, event: ClusterEvent) -> None:
        """Offer others what a pod has released, unless it is only tried: then all comes back, or is taken."""
        if uid not in self.tried:
            self.queue.notify(event)

    def forget(self, uid: str) -> None:
        """Count a pod no more that was assumed and will not be bound; one that the API server shows on a node stays."""
        if self.node_cache.is_assumed(uid):
            self.participants.unreserve(uid)
            if uid not in self.tried:
                self.queue.wake(self.bindings.peers(uid))

    def restore_holds(self, pairs: Iterable[tuple[Hold, Pod]]) -> None:
        """Hold again what was held for pods before a trial, and is not any more; not for pods that wait no longer."""
        for hold, pod in pairs:
            if self.holds.of(hold.uid) is None and self.may_wait(pod):
                self.holds.add(hold, pod)

    def release_hold(self, uid: str) -> None:
        """Hold no cards for a pod any more; others may get them."""
        if self.holds.release(uid):
            self.queue.notify(ClusterEvent.POD_REMOVED)

    def _show(self, pod: Pod) -> None:
        if pod.uid in self.running:  # what does not count, such as when it was started
            self.running[pod.uid] = pod

    def _dequeue(self, pod: Pod) -> None:
        self.gangs.drop_waiting(pod.uid)
        self.queue.remove(pod.uid)
        self.handed_over.pop(pod.uid, None)
        self._affinity_hints.remove(pod.uid)
        self.release_hold(pod.uid)

    def _count(self, pod: Pod) -> None:
        """Count a pod that has a node, or close its node if that is impossible."""
        node = pod.spec.node_name
        self.running[pod.uid] = pod
        try:
            held = running_allocation(pod, self.settings, resized_to=self.resized_to.get(pod.uid))
        except AllocationError as error:
            self.forget(pod.uid)  # another has bound it: the Binding that was assumed will be refused
            self.node_cache.add_pod(pod, node)
            self._uncounted.add(pod, error)
            return
        self._uncounted.remove(pod)
        self.participants.reserve(participants.Placed(pod, node, *(held or ())))

    # ---- nodes and cards -------------------------------------------------------------------------------------------

    def set_node(self, node: Node, old: Node | None = None) -> None:
        """Set the state of a node; its register annotation counts unless an agent reports the node's cards."""
        if old is not None and are_nodes_alike(node, old):
            if node.images != old.images:
                self.node_cache.set_node(node)
            return
        self.node_cache.set_node(node)
        self.plugin_nodes.set_node(node)
        self.node_problems.set_node(node)
        self.deliveries.set_node(node)
        name, annotations = node.metadata.name, node.metadata.annotations
        events = ClusterEvent.NODE_CHANGED
        cordon = frozenset(words(annotations.get(CORDON, "")))
        if old is None or cordon != self.ledger.cordon(name):
            events |= ClusterEvent.CARDS_CHANGED
        self.ledger.set_cordon(name, cordon)
        if self._inventories.register(name, annotations.get(HAMI_REGISTER), annotations.get(HAMI_SCORES, "")):
            events |= ClusterEvent.CARDS_CHANGED
        if self.bindings.is_on and (old is None or node.metadata.share_modes != old.metadata.share_modes):
            self.bindings.set_share_modes(name, node.metadata.share_modes)
            events |= ClusterEvent.CARDS_CHANGED
        self._touch(name)
        self.queue.notify(events)

    def drop_node(self, node: Node) -> None:
        """Forget a node. The reservations of its pods are kept and count again if the node is created again."""
        self.node_cache.drop_node(node.metadata.name)
        self.plugin_nodes.drop_node(node.metadata.name)
        self.node_problems.drop_node(node.metadata.name)
        self.deliveries.drop_node(node.metadata.name)
        self.node_allocators.drop_node(node.metadata.name)
        self.bindings.set_share_modes(node.metadata.name, {})
        events = ClusterEvent.NODE_CHANGED
        if self._inventories.register(node.metadata.name, None):
            events |= ClusterEvent.CARDS_CHANGED
        self._touch(node.metadata.name)
        self.queue.notify(events)

    def _touch(self, node: str) -> None:
        """Note for sums over all nodes that one changed, or its cards."""
        self.fair_share.touch(node)
        self.workload.touch(node)

    def _recount_cards(self, node: str) -> None:
        """Count the cards of a node again, which changed, came or went."""
        self._touch(node)
        self.fair_share.recount_node(node)
        self.allocated_time.recount_node(node)
        self.foreign_devices.refresh_node(node)

    def set_lease(self, lease: Lease, _old: Lease | None = None) -> None:
        """Set the Lease of a card or of an agent."""
        device_lease = DeviceLease.of(lease)
        if device_lease is not None:
            self.device_leases.set_lease(device_lease)
        else:
            self.agent_leases.set_lease(lease)

    def drop_lease(self, lease: Lease) -> None:
        """Forget the Lease of a card or of an agent."""
        self.device_leases.drop_lease(lease.metadata.name, lease.metadata.uid)
        self.agent_leases.drop_lease(lease)

    def set_claim(self, claim: GpuClaim, _old: GpuClaim | None = None) -> None:
        """Set the state of a GpuClaim, whose spec never changes as long as it exists."""
        self.gangs.set_claim(claim.metadata.namespace, claim.metadata.name, claim.spec.gang_ref)
        if self.claims.set(claim):
            self.queue.wake(self.claims.users(claim))

    def drop_claim(self, claim: GpuClaim) -> None:
        """Forget a GpuClaim; pods that have its cards keep them, and pods that wait for them wait for another claim."""
        self.gangs.drop_claim(claim.metadata.namespace, claim.metadata.name)
        self.claims.drop(claim)
        self.queue.wake(self.claims.users(claim))
