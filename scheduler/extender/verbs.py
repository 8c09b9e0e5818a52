"""The extender of a stock kube-scheduler, which asks it for fitting nodes, their scores, evictions and the Binding.

Nothing is reserved between `/filter` and `/bind`, so nothing has to expire, and a pod that kube-scheduler gives up
leaves nothing behind: `/bind` checks and reserves in one step, and fails if another pod was faster; kube-scheduler then
tries again. Only pods of a gang wait in `/bind`, for the others of their gang (`scheduler.extender.gathering`).
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from allocation.errors import AllocationError
from allocation.reasons import PodReason
from allocation.steps import Steps
from scheduler.binding.binder import Result
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.cycle import lifts
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.cycle.result import Unschedulable
from scheduler.extender import filtering, preemption
from scheduler.extender.errors import RefusedError
from scheduler.extender.gathering import Gathering
from scheduler.extender.offered_pods import OfferedPods
from scheduler.extender.preemption_wire import PreemptionArgs, PreemptionResult
from scheduler.extender.refused_nodes import RefusedNodes
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.extender.wire import Args, BindingArgs, FilterResult, HostPriority
from scheduler.filters import gang_block
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


class Extender:
    """The verbs during one term."""

    def __init__(
        self,
        *,
        state: ClusterState,
        pods: OfferedPods,
        cycle: SchedulingCycle,
        binding_cycle: BindingCycle,
        metrics: Metrics,
        rejected: RejectedPods,
        chooser: Chooser,
        gathering: Gathering,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Bind the pods of `pods`, those of gangs by `gathering`; note in `rejected` those that no node takes."""
        self._state = state
        self._pods = pods
        self._cycle = cycle
        self._binding_cycle = binding_cycle
        self._metrics = metrics
        self._rejected = rejected
        self._chooser = chooser
        self._gathering = gathering
        self._is_trusted = is_trusted
        self._refused = RefusedNodes(state.ledger, clock=state.queue.clock)
        self._is_open = False
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._waited_at = -math.inf

    @property
    def _alone(self) -> AbstractAsyncContextManager[object]:
        """What is held, with the lock of rehearsals, so that the loop does not reserve a gang meanwhile."""
        return self._state.turn if self._state.has_queue else nullcontext()

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
            await self._gathering.run()
        finally:
            self._is_open = False

    async def drain(self, seconds: float) -> bool:
        """Wait for the Bindings in progress, at most `seconds`; return whether all are finished."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)
        return not self._under_way

    def abandon(self) -> None:
        """Cancel the Bindings in progress."""
        self._gathering.abandon()
        for task in self._under_way.values():
            task.cancel()

    async def filter(self, args: Args) -> FilterResult:
        """Return the nodes that take the pod."""
        with self._metrics.extender_seconds.labels("filter").time():
            pod, since = await self._pods.with_gang(args.pod.metadata), self._rejected.changes
            # Templates of nodes are for autoscalers, which ask about one pod; objects of nodes may be.
            is_simulation = any(node.metadata.name not in self._state.node_cache for node in args.nodes)
            is_alone = pod is None or is_simulation or not self._state.is_external(pod)
            why = "" if pod is None or is_alone else await self._gathering.admit(pod, starts=not args.nodes)
            result = filtering.reject(args, why) if why else await self._evaluated(self._filter(pod, args), Pacer())
            if pod is None and not result.has_node:
                pod = await self._pods.known(args.pod.metadata)
            if pod is not None and self._state.is_external(pod):
                self._rejected.note(pod, None if result.has_node else tuple(filtering.node_names(args)), since=since)
            return result

    async def _evaluated(self, steps: Steps[T], pacer: Pacer) -> T:
        """Return the result of `steps`, during which no gang is rehearsed."""
        async with self._gathering.rehearsals.alone, self._alone:
            return await pacer.run(steps)

    def _filter(self, pod: Pod | None, args: Args) -> Steps[FilterResult]:
        """Return the nodes that take the pod; of a gang that gathers each pod gets the node on which all fit together.

        If its node does not take it any more, or is not one of kube-scheduler's, any other one of the gang's block may.
        """
        if pod is None:
            return (yield from self._filter_nodes(pod, args))
        planned, refused = self._gathering.planned(pod), self._refused.of(pod)
        if planned and planned not in refused:
            result = yield from self._filter_nodes(pod, filtering.among(args, (planned,)))
            if result.has_node:
                others = (name for name in filtering.node_names(args) if name != planned)
                result.failed_nodes.update(dict.fromkeys(others, "the pod's gang fits with the pod on another node"))
                return result
        nodes = self._state.node_cache.nodes
        block, outside = gang_block.rule(pod, gangs=self._state.gangs, nodes=nodes), dict[str, str]()
        if block is not None:
            for name in filtering.node_names(args):
                rejection = block.rejection(nodes[name]) if name in nodes else None
                if rejection is not None:
                    outside[name] = rejection.message
        names = set(filtering.node_names(args))
        refused = {name: why for name, why in refused.items() if name in names and name not in outside}
        if outside or refused:
            args = filtering.among(args, names - outside.keys() - refused.keys())
        result = yield from self._filter_nodes(pod, args)
        result.failed_nodes.update(refused)
        result.failed_and_unresolvable_nodes.update(outside)
        return result

    def _filter_nodes(self, pod: Pod | None, args: Args) -> Steps[FilterResult]:
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
        if await self._gathering.admit(waiting.pod, starts=False):
            return False, 0.0
        pacer, args = Pacer(), Args.of_pod(waiting.pod, waiting.nodes or ())
        result = await self._evaluated(self._filter(waiting.pod, args), pacer)
        return result.has_node, pacer.spent

    def waits_for_gang(self, pod: Pod) -> str:
        """Return why a pod waits because of its gang, or an empty string."""
        return self._gathering.why(pod) if self._state.is_external(pod) else ""

    def renewed(self) -> Iterable[str]:
        """Return the UIDs of pods that a node may take again to which they could not be bound some time ago."""
        return self._refused.forget_ended()

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
            pod = self._pods.cached(args.pod.metadata)
            scores = self._lifted(
                pod,
                lambda lift: filtering.prioritize(self._state, args, pod=pod, lift=lift),
                lambda points: any(each.score for each in points),
            )
            return await self._evaluated(scores, Pacer())

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
        """Return the nodes whose cards take the pod once the victims are gone: those of kube-scheduler, and more.

        For a pod that is bound only together with several others no node is returned: nothing says that they fit, too.
        """
        with self._metrics.extender_seconds.labels("preempt").time():
            pod = await self._pods.known(args.pod.metadata)
            if pod is not None and not self._gathering.may_preempt(pod):
                return PreemptionResult()
            more = preemption.of_chooser(self._chooser, pod)
            return await self._evaluated(preemption.preempt(self._state, args, more=more), Pacer())

    async def bind(self, args: BindingArgs) -> None:
        """Reserve cards for the pod on the node that kube-scheduler chose, and bind it, if need be with its gang.

        A Binding that has begun is finished even if the caller disconnects.

        Raises:
            RefusedError: the pod is not bound, and nothing is reserved for it.
        """
        with self._metrics.extender_seconds.labels("bind").time():
            await self._bind(args)

    async def _bind(self, args: BindingArgs) -> None:
        if args.node not in self._state.node_cache:
            raise RefusedError(f"the cluster has no node {args.node}")
        pod = await self._pods.to_bind(args)
        async with self._gathering.rehearsals.alone, self._alone:
            binding = self._reserve(pod, args.node)

        async def bind() -> None:
            result = await binding
            if result.outcome is not Outcome.BOUND:
                self._refused.note(pod, args.node, result.note)
                raise RefusedError(f"pod {pod} was not bound to {args.node}: {result.outcome.value}: {result.note}")

        task = self._under_way[pod.uid] = asyncio.create_task(bind())
        task.add_done_callback(lambda done: self._finished(pod, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise RefusedError(f"pod {pod}: the term ended while its Binding was in progress") from None

    def _reserve(self, pod: Pod, node: str) -> Awaitable[Result]:
        """Reserve cards for the pod in one step; return what binds it, by itself or with its gang."""
        taken = self._state.node_cache.node_of(pod.uid)
        if taken:
            raise RefusedError(f"pod {pod}: it is bound, or being bound, to {taken}")
        turn = self._gathering.enter(pod)
        with self._metrics.scheduling_seconds.labels("single_node").time():
            decision = self._cycle.reserve_on(pod, node)
        if isinstance(decision, Unschedulable):
            self._metrics.decisions.labels("unschedulable").inc()
            fields = {"pod": str(pod), "uid": pod.uid, "outcome": "unschedulable", "node": node}
            log.info("pod %s is not bound to %s: %s", pod, node, decision.note, extra=fields)
            self._refused.note(pod, node, decision.note)
            raise RefusedError(f"pod {pod}: {decision.note}")
        if turn is not None:
            return self._gathering.join(turn, pod, decision)
        return self._binding_cycle.run(pod, decision)

    def _finished(self, pod: Pod, task: asyncio.Task[None]) -> None:
        del self._under_way[pod.uid]
        error = None if task.cancelled() else task.exception()
        # A RefusedError is for the caller, and its cause was logged in case that the caller has disconnected.
        if error is not None and not isinstance(error, RefusedError):
            log.error("a decision was not carried out", exc_info=error)
