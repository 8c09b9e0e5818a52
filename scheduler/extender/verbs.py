"""The extender of a stock kube-scheduler, which asks it for fitting nodes, their scores, evictions and the Binding.

Nothing is reserved between `/filter` and `/bind`, so nothing has to expire, and a pod that kube-scheduler gives up
leaves nothing behind: `/bind` checks and reserves in one step, and fails if another pod was faster; kube-scheduler then
tries again.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TypeVar

from allocation.errors import AllocationError
from allocation.reasons import PodReason
from allocation.steps import Steps
from cluster.api import ReadApi
from cluster.dra import ResourceClaim
from cluster.errors import ClusterError, NotFoundError
from cluster.informer import Informer
from cluster.resource import PODS, RESOURCE_CLAIMS
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.cycle import lifts, messages
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.cycle.result import Unschedulable
from scheduler.extender import filtering, preemption
from scheduler.extender.preemption_wire import PreemptionArgs, PreemptionResult
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.extender.wire import Args, BindingArgs, FilterResult, HostPriority, PodMeta
from scheduler.gpu_requirements import WaitingPodError
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.preemption.choice import Chooser
from scheduler.preemption.waiting_pod import WaitingPod
from scheduler.state.cluster_state import ClusterState

T = TypeVar("T")

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.02
_BETWEEN_SECONDS = 0.2


class RefusedError(Exception):
    """A pod is not bound; the message says why."""


class Extender:
    """The verbs during one term."""

    def __init__(
        self,
        *,
        api: ReadApi,
        state: ClusterState,
        pods: Informer[Pod],
        cycle: SchedulingCycle,
        binding_cycle: BindingCycle,
        metrics: Metrics,
        rejected: RejectedPods,
        chooser: Chooser,
        names: frozenset[str],
        reads_live: Callable[[], bool],
        is_trusted: Callable[[], bool],
    ) -> None:
        """Bind pods whose schedulerName is one of `names`, and note in `rejected` those that no node takes.

        While `reads_live`, kube-scheduler may have allocated devices to a pod just before `/bind`, so each is read.
        """
        self._api = api
        self._state = state
        self._pods = pods
        self._cycle = cycle
        self._binding_cycle = binding_cycle
        self._metrics = metrics
        self._rejected = rejected
        self._chooser = chooser
        self._names = names
        self._reads_live = reads_live
        self._is_trusted = is_trusted
        self._is_open = False
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._waited_at = -math.inf

    @property
    def is_trusted(self) -> bool:
        """Whether its results are still valid."""
        return self._is_open and self._is_trusted()

    @property
    def being_bound(self) -> frozenset[str]:
        """The UIDs of the pods whose Bindings are in progress."""
        return frozenset(self._under_way)

    async def run(self) -> None:
        """Accept calls until cancelled; no Binding begins after that."""
        self._is_open = True
        try:
            await asyncio.Event().wait()
        finally:
            self._is_open = False

    async def drain(self, seconds: float) -> bool:
        """Wait for the Bindings in progress, at most `seconds`; return whether all are finished."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)
        return not self._under_way

    def abandon(self) -> None:
        """Cancel the Bindings in progress."""
        for task in self._under_way.values():
            task.cancel()

    async def filter(self, args: Args) -> FilterResult:
        """Return the nodes that take the pod."""
        with self._metrics.extender_seconds.labels("filter").time():
            pod, since = self._pods.get(args.pod.metadata.name, args.pod.metadata.namespace), self._rejected.changes
            result = await Pacer().run(self._filter(pod, args))
            if pod is None and not result.has_node:
                pod = await self._known(args.pod.metadata)
            if pod is not None:
                self._rejected.note(pod, None if result.has_node else tuple(filtering.node_names(args)), since=since)
            return result

    def _filter(self, pod: Pod | None, args: Args) -> Steps[FilterResult]:
        held = self._held(pod) if pod is not None else None
        return self._lifted(
            pod,
            lambda lift: filtering.filter_(self._state, args, held=held, lift=lift),
            lambda found: found.has_node,
        )

    def _held(self, pod: Pod) -> AllocationError | None:
        """Return why no node takes a pod; kube-scheduler gives the devices back of a pod that no node takes."""
        if pod.excess:
            return AllocationError(pod.excess)
        allocated = pod.status.extended_resource_claim_status
        conflict = self._state.device_classes.conflict(allocated.resources) if allocated is not None else ""
        return WaitingPodError(PodReason.DraAllocated, conflict) if conflict else None

    async def fits(self, waiting: WaitingPod) -> tuple[bool, float]:
        """Return whether one of the nodes that rejected a pod takes it now, and the seconds that this took."""
        pacer = Pacer()
        result = await pacer.run(self._filter(waiting.pod, Args.of_pod(waiting.pod, waiting.nodes or ())))
        return result.has_node, pacer.spent

    async def filter_by_news(self, args: Args) -> FilterResult:
        """Return the nodes that take the pod, after a short wait for pod deletions if none does.

        kube-scheduler retries an unschedulable pod as soon as it sees that another pod was deleted, and this process
        may see that a moment later. Rejected then, the pod would wait for the next event of the cluster. One wait now
        and then is enough: later calls use what it has brought.
        """
        before = self._state.ledger.changes.state
        result, now = await self.filter(args), asyncio.get_running_loop().time()
        if not result.awaits_a_pod or now < self._waited_at + _BETWEEN_SECONDS:
            return result
        self._waited_at = now
        await asyncio.sleep(_WAIT_SECONDS)
        return result if self._state.ledger.changes.state == before else await self.filter(args)

    async def prioritize(self, args: Args) -> list[HostPriority]:
        """Return the scores of the nodes."""
        with self._metrics.extender_seconds.labels("prioritize").time():
            pod = self._pods.get(args.pod.metadata.name, args.pod.metadata.namespace)
            return await Pacer().run(
                self._lifted(
                    pod,
                    lambda lift: filtering.prioritize(self._state, args, pod=pod, lift=lift),
                    lambda points: any(each.score for each in points),
                )
            )

    def _lifted(self, pod: Pod | None, run: Callable[[Lift], Steps[T]], has_fit: Callable[[T], bool]) -> Steps[T]:
        """Return the result of `run` for a pod, to which the cards that are held for it are free.

        If no node fits, so are those that are held for pods of lower rank.
        """
        if pod is None or not self._state.holds:
            return (yield from run(NO_LIFT))
        own, lower = lifts.own(self._state, pod), lifts.lower(self._state, pod)
        result = yield from run(own)
        if has_fit(result) or not lower:
            return result
        again = yield from run(own | lower)
        return again if has_fit(again) else result

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the nodes whose cards take the pod once the victims are gone: those of kube-scheduler, and more."""
        with self._metrics.extender_seconds.labels("preempt").time():
            pod = await self._known(args.pod.metadata)
            more = preemption.of_chooser(self._chooser, pod)
            return await Pacer().run(preemption.preempt(self._state, args, more=more))

    async def bind(self, args: BindingArgs) -> None:
        """Reserve cards for the pod on the node that kube-scheduler chose, and bind it.

        A Binding that has begun is finished even if the caller disconnects.

        Raises:
            RefusedError: the pod is not bound, and nothing is reserved for it.
        """
        with self._metrics.extender_seconds.labels("bind").time():
            await self._bind(args)

    async def _bind(self, args: BindingArgs) -> None:
        if args.node not in self._state.node_cache:
            raise RefusedError(f"the cluster has no node {args.node}")
        pod = await self._pod(args)
        node = self._state.node_cache.node_of(pod.uid)
        if node:
            raise RefusedError(f"pod {pod}: it is bound, or being bound, to {node}")
        with self._metrics.scheduling_seconds.labels("single_node").time():
            decision = self._cycle.reserve_on(pod, args.node)
        if isinstance(decision, Unschedulable):
            self._metrics.decisions.labels("unschedulable").inc()
            fields = {"pod": str(pod), "uid": pod.uid, "outcome": "unschedulable", "node": args.node}
            log.info("pod %s is not bound to %s: %s", pod, args.node, decision.note, extra=fields)
            raise RefusedError(f"pod {pod}: {decision.note}")

        async def bind() -> None:
            result = await self._binding_cycle.run(pod, decision)
            if result.outcome is not Outcome.BOUND:
                raise RefusedError(f"pod {pod} was not bound to {args.node}: {result.outcome.value}: {result.note}")

        task = self._under_way[pod.uid] = asyncio.create_task(bind())
        task.add_done_callback(lambda done: self._finished(pod, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise RefusedError(f"pod {pod}: the term ended while its Binding was in progress") from None

    def _finished(self, pod: Pod, task: asyncio.Task[None]) -> None:
        del self._under_way[pod.uid]
        error = None if task.cancelled() else task.exception()
        # A RefusedError is for the caller, and its cause was logged in case that the caller has disconnected.
        if error is not None and not isinstance(error, RefusedError):
            log.error("a decision was not carried out", exc_info=error)

    async def _known(self, meta: PodMeta) -> Pod | None:
        """Return a pod from the cache, or read it if kube-scheduler was faster; None if it is gone or cannot be read.

        kube-scheduler asks about a pod that fits nowhere once, and may not ask again for five minutes.
        """
        pod = self._pods.get(meta.name, meta.namespace)
        if pod is not None and pod.uid == meta.uid:
            return pod
        try:
            pod = await self._api.get(PODS, Pod, name=meta.name, namespace=meta.namespace)
        except ClusterError as error:
            log.info("pod %s/%s, of which kube-scheduler asks, cannot be read: %s", meta.namespace, meta.name, error)
            return None
        if pod.uid != meta.uid:
            return None
        self._pods.add_if_new(pod)
        return pod

    async def _pod(self, args: BindingArgs) -> Pod:
        """Return the pod from the cache, or read it if the cache does not have it yet, or may have it too old."""
        pod = self._pods.get(args.podname, args.podnamespace)
        if pod is None or pod.uid != args.poduid or self._reads_live():
            pod = await self._read(args)
            # The cache notices its deletion even if no watch event shows the pod.
            self._pods.add_if_new(pod)
        reason = _refusal(pod, args, self._names) or await self._devices(pod)
        if reason:
            raise RefusedError(f"pod {pod}: {reason}")
        return pod

    async def _devices(self, pod: Pod) -> str:
        """Return the reason why a pod has devices by DRA, or an empty string if kube-scheduler allocated none to it.

        The status of a pod whose devices were given back still names the ResourceClaim, which does not exist any more.
        """
        allocated = pod.status.extended_resource_claim_status
        if allocated is None:
            return ""
        name, namespace = allocated.resource_claim_name, pod.metadata.namespace
        try:
            await self._api.get(RESOURCE_CLAIMS, ResourceClaim, name=name, namespace=namespace)
        except NotFoundError:
            return ""
        except ClusterError as error:
            why = f"whether its ResourceClaim {name} exists is unknown: {error}"
            return messages.waiting(PodReason.DraAllocated, why)
        conflict = self._state.device_classes.conflict(allocated.resources) or (
            f"ResourceClaim {name} has devices for {', '.join(allocated.resources)}, too: remove extendedResourceName"
            " from the DeviceClass that names it, and delete the claim"
        )
        return messages.waiting(PodReason.DraAllocated, conflict)

    async def _read(self, args: BindingArgs) -> Pod:
        try:
            return await self._api.get(PODS, Pod, name=args.podname, namespace=args.podnamespace)
        except NotFoundError:
            raise RefusedError(f"pod {args.podnamespace}/{args.podname} does not exist") from None
        except ClusterError as error:
            raise RefusedError(f"pod {args.podnamespace}/{args.podname} cannot be read: {error}") from None


def _refusal(pod: Pod, args: BindingArgs, names: frozenset[str]) -> str:
    """Return the reason why this pod must not be bound, or an empty string."""
    if pod.uid != args.poduid:
        return f"its UID is {pod.uid}, not {args.poduid}: another pod has the name now"
    if pod.spec.node_name:
        return f"it is bound to {pod.spec.node_name} already"
    if pod.finished or pod.metadata.deletion_timestamp:
        return "it is finished or being deleted"
    if pod.spec.scheduler_name not in names:
        return f"its schedulerName is {pod.spec.scheduler_name}; ours are {', '.join(sorted(names))}"
    if pod.spec.scheduling_gates:
        return f"it has scheduling gates: {pod.spec.gates}"
    return ""
