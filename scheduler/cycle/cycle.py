"""One scheduling cycle: from a pod to a node that is reserved for it, or to the reasons why no node takes it.

A cycle runs in steps, between which other tasks run. Therefore the chosen node is checked again before anything is
reserved; the check and the reservation are one step.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.placement.mig_plan import plan
from allocation.quota import Headroom
from allocation.reasons import NodeReason, PodReason
from allocation.steps import Exclusive, Steps, finish
from scheduler.cycle import evaluation, lifts, messages, remedies
from scheduler.cycle.demand import demand_of
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.fast_path import FastPath, PossiblyUnschedulable
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.cycle.preference import prefer
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.filters import unsupported_fields
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError
from scheduler.metrics.labels import Path
from scheduler.objects import Pod
from scheduler.scoring.node_scorer import NodeScorer
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod

_NOT_BOUND: Final = frozenset({NodeReason.NodeNotBound.value})
_INSTANCE_ASKED: Final = frozenset({PodReason.MigInstanceAsked.value})
_DEFAULT_WEIGHTS: Final = ScoreWeights()
_ATTEMPTS: Final = 3
"""How often a cycle starts again because its result was outdated by a change."""


class Attempt(msgspec.Struct, frozen=True):
    """The result of a cycle, before anything is reserved.

    Attributes:
        result: the node, or the reasons.
        evaluation: the evaluation of every node; None if the result was found without, or the pod is held.
        lift: the reservations that were taken to be gone.
    """

    result: ScheduleResult
    evaluation: Evaluation | None = None
    lift: Lift = NO_LIFT


class SchedulingCycle:
    """Schedules one pod at a time.

    Attributes:
        state: the cluster as the term knows it; reservations are made there.
    """

    def __init__(self, state: ClusterState, *, weights: ScoreWeights = _DEFAULT_WEIGHTS) -> None:
        """Weigh cards and preferences by `weights`; in extender mode kube-scheduler weighs the preferences."""
        self.state = state
        self._scorer = NodeScorer(state.node_cache, weights if state.has_queue else NO_PREFERENCES)
        self._fast_path = FastPath(
            ledger=state.ledger,
            node_cache=state.node_cache,
            closed_nodes=state.closed_nodes,
            scorer=self._scorer,
        )
        state.queue.competition.may_fit = self._fast_path.may_fit

    def schedule(self, pod: Pod, *, explain: bool = True) -> Steps[ScheduleResult | None]:
        """Choose a node and cards for `pod` and reserve them.

        Return None if the pod changed meanwhile, or the cluster changed too often. Without `explain` the result may
        lack the reasons why no node takes the pod, which take longer to compute.
        """
        queue, changes = self.state.queue, self.state.ledger.changes
        queued = queue.pod(pod.uid)
        for _ in range(_ATTEMPTS):
            requirements = self.requirements(pod)
            if isinstance(requirements, Unschedulable):
                return requirements
            before, headroom = changes.state, self._headroom(pod)
            attempt = yield from self._find(pod, requirements, headroom, explain=explain)
            if queue.pod(pod.uid) is not queued:
                return None
            with Exclusive("checking and reserving"):
                result = self._reserve(pod, requirements, attempt, before=before, headroom=headroom)
            if result is not None:
                return result
        return None

    def dry_run(self, pod: Pod) -> Steps[Attempt]:
        """Return what `schedule` would return now, with the evaluation of every node unless the pod is held.

        Nothing is reserved, and no MIG instance is requested.
        """
        requirements, headroom = self.requirements(pod), self._headroom(pod)
        if isinstance(requirements, Unschedulable):
            return Attempt(requirements)
        attempt = yield from self._find(pod, requirements, headroom, explain=True)
        evaluated = attempt.evaluation
        if evaluated is None:
            evaluated = yield from self._evaluate(pod, requirements, headroom, lift=attempt.lift)
        yield
        rejections = evaluated.rejections | dict.fromkeys(sorted(evaluated.others), evaluated.rejection_of_others)
        return Attempt(attempt.result, msgspec.structs.replace(evaluated, rejections=rejections, others=()))

    def reserve_on(self, pod: Pod, node: str) -> ScheduleResult:
        """Choose cards for `pod` on the `node` that kube-scheduler chose, and reserve them.

        kube-scheduler has evaluated the node in every other respect.
        """
        requirements = self._read(pod)
        if isinstance(requirements, Unschedulable):
            return requirements
        own, lower, headroom = lifts.own(self.state, pod), lifts.lower(self.state, pod), self._headroom(pod)
        evaluated = evaluation.evaluate_node(self.state, requirements, node, headroom, lift=own)
        if not evaluated.scores and lower:
            again = evaluation.evaluate_node(self.state, requirements, node, headroom, lift=own | lower)
            evaluated = again if again.scores else evaluated
        return self._assume(pod, finish(self._choose(evaluated, path="single_node")), evaluated.lift)

    def requirements(self, pod: Pod) -> GpuRequirements | Unschedulable:
        """Return the GPU requirements of a pod, or the reason why it is held."""
        field = unsupported_fields.unsupported(pod.spec) if self.state.has_queue and not pod.excess else ""
        if field:
            return _held(unsupported_fields.remedy(field))
        return self._read(pod)

    def forget(self, pod: Pod) -> None:
        """Release what was reserved for a pod that will not be bound."""
        self.state.ledger.forget(pod.uid)
        self.state.instance_requests.refresh(pod.uid)
        self.state.device_leases.refresh(pod.uid)
        self.state.node_cache.forget(pod.uid)
        if not self.state.node_cache.node_of(pod.uid):
            self.state.quotas.remove_pod(pod.uid)
            self.state.fair_share.remove_pod(pod.uid)
        self.state.queue.wake(self.state.bindings.peers(pod.uid))

    # ---- the steps of a cycle --------------------------------------------------------------------------------------

    def _find(self, pod: Pod, requirements: GpuRequirements, headroom: Headroom, *, explain: bool) -> Steps[Attempt]:
        """Return the result for a pod whose volumes are known; what is held for pods of lower rank is the last resort.

        Tried without some holds, other pods of its kind may be rejected where it is not.
        """
        state, own = self.state, lifts.own(self.state, pod)
        volumes = state.node_cache.volumes_of(pod)
        if volumes is not None and volumes.problem:
            return Attempt(_waiting(PodReason.VolumeClaimNotReady, volumes.problem))
        if requirements.bound is not None:
            attempt = yield from self._find_bound(pod, requirements, headroom, explain=explain, lift=own)
        else:
            attempt = yield from self._find_any(
                pod, requirements, headroom, has_volumes=volumes is not None, explain=explain, lift=own
            )
        if own:
            attempt = msgspec.structs.replace(attempt, lift=own)
        lower = NO_LIFT if isinstance(attempt.result, Scheduled) else lifts.lower(state, pod)
        if not lower:
            return attempt
        nodes = sorted({each.node for uid in lower if (each := state.ledger.reservation(uid)) is not None})
        evaluated = yield from self._evaluate(pod, requirements, headroom, among=nodes, lift=own | lower)
        if evaluated.scores:
            result = yield from self._choose(evaluated, total=len(state.node_cache))
            return Attempt(result, lift=own | lower)
        return Attempt(msgspec.structs.replace(attempt.result, kind=None), attempt.evaluation, own)

    def _find_any(
        self,
        pod: Pod,
        requirements: GpuRequirements,
        headroom: Headroom,
        *,
        has_volumes: bool,
        explain: bool,
        lift: Lift,
    ) -> Steps[Attempt]:
        """Return the result of the fast path if it has one, else evaluate every node."""
        few = None
        if has_volumes:
            few = self.state.node_cache.few_candidates(pod)
            if few is not None:
                evaluated = yield from self._evaluate(pod, requirements, headroom, among=few, lift=lift)
                if evaluated.scores:
                    return Attempt((yield from self._choose(evaluated, total=len(self.state.node_cache))))
        cached = None
        if not lift and not self.state.own_rejections(requirements):
            cached = yield from self._fast_path.find(pod, requirements, headroom, is_rejected=few is not None)
        if isinstance(cached, Scheduled):
            return Attempt(cached)
        ledger = self.state.ledger
        known = cached if not ledger.mig_nodes else None
        if known is not None and (known.note or not (explain or isinstance(known, PossiblyUnschedulable))):
            found = Unschedulable(known.note, known.reasons, path="cached", kind=known.kind, demand=known.demand)
            return Attempt(found)
        before = ledger.changes.state
        attempt = yield from self._evaluate_all(pod, requirements, headroom, lift=lift)
        result = attempt.result
        if isinstance(result, Unschedulable) and known is not None:
            if ledger.changes.state == before:
                self._fast_path.remember(known, result)
            return Attempt(msgspec.structs.replace(result, kind=known.kind), attempt.evaluation)
        return attempt

    def _find_bound(
        self, pod: Pod, requirements: GpuRequirements, headroom: Headroom, *, explain: bool, lift: Lift
    ) -> Steps[Attempt]:
        """Return the result on the few nodes with cards that are bound to the pod's application."""
        total, few = len(self.state.node_cache), self.state.candidates(requirements)
        evaluated = yield from self._evaluate(pod, requirements, headroom, among=few, lift=lift)
        if evaluated.scores:
            return Attempt((yield from self._choose(evaluated, total=total)))
        if not explain:
            return Attempt(Unschedulable("", evaluated.reasons() | _NOT_BOUND))
        return (yield from self._evaluate_all(pod, requirements, headroom, lift=lift))

    def _evaluate_all(
        self, pod: Pod, requirements: GpuRequirements, headroom: Headroom, *, lift: Lift
    ) -> Steps[Attempt]:
        """Evaluate every node that may take the pod."""
        evaluated = yield from self._evaluate(pod, requirements, headroom, lift=lift)
        return Attempt((yield from self._conclude(pod, evaluated, headroom)), evaluated)

    def _evaluate(
        self,
        pod: Pod,
        requirements: GpuRequirements,
        headroom: Headroom,
        *,
        among: Sequence[str] | None = None,
        lift: Lift,
    ) -> Steps[Evaluation]:
        """Evaluate the nodes `among`, or every node, and order those that take the pod by its preferences."""
        state = self.state
        evaluated = yield from evaluation.evaluate(state, pod, requirements, headroom, among=among, lift=lift)
        return (
            yield from prefer(
                pod,
                evaluated,
                scorer=self._scorer,
                node_cache=state.node_cache,
                ledger=state.ledger,
                headroom=headroom,
            )
        )

    def _read(self, pod: Pod) -> GpuRequirements | Unschedulable:
        if pod.excess:
            return _held(pod.excess)
        planned, meta = pod.gpu_claims if isinstance(pod, PlannedPod) else {}, pod.metadata
        try:
            return self.state.requirements(
                pod.spec,
                meta.annotations,
                labels=meta.labels,
                namespace=meta.namespace,
                uid=meta.uid,
                planned=planned,
            )
        except WaitingPodError as error:
            return _waiting(error.reason, str(error))
        except AllocationError as error:
            return _held(str(error))

    def _headroom(self, pod: Pod) -> Headroom:
        return self.state.headroom(pod.metadata.labels, pod.metadata.namespace)

    # ---- the result ------------------------------------------------------------------------------------------------

    def _conclude(self, pod: Pod, evaluated: Evaluation, headroom: Headroom) -> Steps[ScheduleResult]:
        """Return the best node, or the MIG instances that the pod waits for, or the reasons why no node takes it."""
        result = yield from self._choose(evaluated)
        if isinstance(result, Scheduled):
            return result
        demand = yield from demand_of(self.state, pod, evaluated)
        waits = yield from self._wait_for_instances(pod, evaluated, headroom)
        return waits or msgspec.structs.replace(result, demand=demand)

    def _choose(self, evaluated: Evaluation, *, path: Path = "full", total: int | None = None) -> Steps[ScheduleResult]:
        """Return the best node, or the reasons; of `total` nodes, those that were not evaluated do not fit."""
        state, request, rejected_nodes = self.state, evaluated.requirements.request, evaluated.nodes.rejections
        if not evaluated.scores:
            yield
            reasons = evaluated.reasons()
            yield
            advice = remedies.of(request, evaluated.requirements.constraints, ledger=state.ledger, reasons=reasons)
            note = yield from messages.no_fit(
                evaluated.rejections,
                rejected_nodes,
                others=evaluated.others,
                rejection_of_others=evaluated.rejection_of_others,
                hints=advice,
            )
            return Unschedulable(note, reasons or frozenset({PodReason.NoNode.value}), path=path)
        fitting = len(evaluated.scores)
        rejected = len(evaluated.rejections) + len(rejected_nodes) + len(evaluated.others)
        if total is not None:
            rejected = total - fitting
        if evaluated.allocation is not None:
            note = messages.find_fit(evaluated.scores, fitting=fitting, rejected=rejected)
            return Scheduled.on_cards(
                state.ledger, evaluated.requirements, evaluated.allocation, evaluated.charges, note=note, path=path
            )
        # A pod that requests no GPU goes to the node with the fewest pods, unless it has preferences.
        scores, lift = evaluated.scores, evaluated.lift
        node = min(scores, key=lambda name: (-scores[name], state.node_cache.pods_on(name, without=lift), name))
        if evaluated.preferences is not None:
            note = messages.find_fit(scores, fitting=fitting, rejected=rejected)
        else:
            note = f"find fit node({node}), {messages.counted(rejected)} not fit, {messages.counted(fitting)} fit"
        return Scheduled(node, request, None, note, path=path)

    def _still_holds(self, pod: Pod, result: Scheduled, before: tuple[int, int], headroom: Headroom) -> bool:
        """Whether nothing has changed since the cycle began, or only what the fast path has taken into account."""
        if self.state.ledger.changes.state == before:
            return True
        is_current = result.path == "cached" and not pod.spec.volumes and result.node not in self.state.closed_nodes()
        return is_current and self._headroom(pod) == headroom

    def _confirm(self, pod: Pod, requirements: GpuRequirements, result: Scheduled, lift: Lift) -> Scheduled | None:
        """Evaluate the chosen node again; return None if it does not take the pod any more."""
        nodes = finish(self.state.node_cache.filter(pod, (result.node,), without=lift))
        if not nodes.fitting:
            return None
        headroom = self._headroom(pod)
        evaluated = evaluation.evaluate_node(self.state, requirements, result.node, headroom, lift=lift)
        confirmed = finish(self._choose(evaluated))
        return msgspec.structs.replace(confirmed, note=result.note) if isinstance(confirmed, Scheduled) else None

    def _reserve(
        self, pod: Pod, requirements: GpuRequirements, attempt: Attempt, *, before: tuple[int, int], headroom: Headroom
    ) -> ScheduleResult | None:
        """Reserve what was found when the changes were at `before`; return None if it has to be found again."""
        result, lift = attempt.result, attempt.lift
        if isinstance(result, Unschedulable):
            if result.requested_instances is None:
                return result
            node = result.requested_instances.node
            planned = finish(self._plan_instances(requirements, [node], self._headroom(pod), lift))
            return planned and self._assume(pod, planned, lift)
        if not self._still_holds(pod, result, before, headroom):
            if requirements.bound is not None and self.requirements(pod) != requirements:
                return None  # other cards are bound to its application now
            lift &= lifts.own(self.state, pod) | lifts.lower(self.state, pod)
            confirmed = self._confirm(pod, requirements, result, lift)
            if confirmed is None:
                return None
            result = confirmed
        if pod.spec.volumes:
            bindings = self.state.node_cache.volume_bindings(pod, result.node)
            if bindings is None:
                return None
            result = msgspec.structs.replace(result, volumes=bindings)
        return self._assume(pod, result, lift)

    def _assume(self, pod: Pod, result: ScheduleResult, lift: Lift) -> ScheduleResult:
        """Reserve what was chosen, or request the MIG instances that the pod waits for; return the result.

        The hold for the pod is released, and those among `lift` on what it takes. If cards are shared fairly, the
        result says which queue pays.
        """
        state = self.state
        if isinstance(result, Unschedulable):
            if result.requested_instances is not None:
                state.instance_requests.add(pod.uid, result.requested_instances)
            return result
        state.holds.release(pod.uid)
        if result.allocation is not None:
            if lift:
                state.holds.release_taken(lift, result.node, result.charges)
                state.instance_requests.release_reserved(pod.uid)
            state.ledger.assume(pod.uid, result.node, result.charges)
            state.instance_requests.refresh(pod.uid)
            state.quotas.add_pod(pod.uid, pod.metadata.namespace)
        state.node_cache.add_pod(pod, result.node, assumed=True, bindings=result.volumes)
        queue = state.fair_share.add_pod(pod)
        return msgspec.structs.replace(result, charged_to=str(queue)) if state.fair_share.queues else result

    def _wait_for_instances(self, pod: Pod, evaluated: Evaluation, headroom: Headroom) -> Steps[Unschedulable | None]:
        """Return the result that the pod waits for MIG instances, requested before or now; None if none would help.

        Requested instances are reserved for this pod; it is bound when the agent reports them. In extender mode, where
        kube-scheduler has the queue, no instances are requested.
        """
        state, requirements = self.state, evaluated.requirements
        if not state.has_queue or not state.ledger.mig_nodes or not requirements.request or requirements.fixed:
            return None
        if requirements.bound is not None:
            return None  # an application service binds what exists
        requests = state.instance_requests.of_pod(pod.uid)
        if requests:
            return Unschedulable(messages.asked(requests), _INSTANCE_ASKED)
        rejected = state.rejected_nodes(requirements, without=evaluated.lift)
        nodes = [name for name in evaluated.nodes.fitting if name not in rejected]
        return (yield from self._plan_instances(requirements, nodes, headroom, evaluated.lift))

    def _plan_instances(
        self, requirements: GpuRequirements, nodes: Sequence[str], headroom: Headroom, lift: Lift
    ) -> Steps[Unschedulable | None]:
        """Return the result that a pod waits for MIG instances to be created on one of `nodes`, or None."""
        state = self.state
        planned = yield from plan(
            state.ledger,
            requirements.request,
            nodes,
            constraints=requirements.constraints,
            requested=state.instance_requests.requested_slices(),
            cooling_down=state.instance_requests.cooling_down(),
            headroom=headroom,
            without=lift,
        )
        if planned is None:
            return None
        note = messages.asked([(planned.node, new) for new in planned.instances])
        return Unschedulable(note, _INSTANCE_ASKED, requested_instances=planned)


def _held(why: str) -> Unschedulable:
    return Unschedulable(messages.held(why), frozenset({PodReason.PodHeld.value}), is_held=True, path="cached")


def _waiting(reason: PodReason, why: str) -> Unschedulable:
    return Unschedulable(messages.waiting(reason, why), frozenset({reason.value}), path="cached")
