"""One scheduling cycle: from a pod to a node that is reserved for it, or to the reasons why no node takes it.

A cycle runs in steps, between which other tasks run. Therefore the chosen node is checked again before anything is
reserved; the check and the reservation are one step.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.fairness.shares import Amounts
from allocation.quota import Headroom
from allocation.steps import Exclusive, Steps, finish
from scheduler.cycle import evaluation, instances, lifts
from scheduler.cycle.demand import amounts
from scheduler.cycle.fast_path import FastPath
from scheduler.cycle.lifts import Lift
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable, held, waiting
from scheduler.cycle.search import Attempt, Case, Search
from scheduler.cycle.selection import select
from scheduler.filters import unsupported_fields
from scheduler.filters.node_filter import NodeFilter
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError
from scheduler.objects import Pod
from scheduler.scoring.node_scorer import NodeScorer
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from scheduler.state.cluster_state import ClusterState
from scheduler.state.participants import Placed

_DEFAULT_WEIGHTS: Final = ScoreWeights()
_ATTEMPTS: Final = 3
"""How often a cycle starts again because its result was outdated by a change."""


class SchedulingCycle:
    """Schedules one pod at a time.

    Attributes:
        state: the cluster as the term knows it; reservations are made there.
    """

    def __init__(self, state: ClusterState, *, weights: ScoreWeights = _DEFAULT_WEIGHTS) -> None:
        """Weigh cards and preferences by `weights`; in extender mode kube-scheduler weighs the preferences."""
        self.state = state
        scorer = NodeScorer(state.node_cache, weights if state.has_queue else NO_PREFERENCES)
        self._fast_path = FastPath(
            ledger=state.ledger,
            nodes=state.node_cache.nodes,
            node_filter=state.node_filter,
            workload=state.workload,
            closed_nodes=state.closed_nodes,
            scorer=scorer,
        )
        self._search = Search(state, scorer=scorer, fast_path=self._fast_path)
        # Without volumes: kube-scheduler has bound them just before, which this process may not have seen yet.
        self._offered_node_filter = NodeFilter(state.node_cache) if state.has_queue else None

    def may_fit(self, kind: Hashable) -> bool:
        """Return False if no node takes any pod of a kind, as far as that is known without a decision."""
        return self._fast_path.may_fit(kind)

    def schedule(
        self, pod: Pod, *, explain: bool = True, creates_instances: bool = True
    ) -> Steps[ScheduleResult | None]:
        """Choose a node and cards for `pod` and reserve them.

        Return None if the pod changed meanwhile, or the cluster changed too often. Without `explain` the result may
        lack the reasons why no node takes the pod, which take longer to compute. Unless it `creates_instances`, the pod
        gets only MIG instances that exist.
        """
        queue, changes = self.state.queue, self.state.ledger.changes
        queued = queue.pod(pod.uid)
        for _ in range(_ATTEMPTS):
            requirements = self.requirements(pod)
            if isinstance(requirements, Unschedulable):
                return requirements
            before, headroom = changes.state, self._headroom(pod)
            creates = creates_instances and not self.state.is_external(pod)
            attempt = yield from self._search.find(
                Case(pod, requirements, headroom, explain, creates_instances=creates)
            )
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
        case = Case(pod, requirements, headroom, creates_instances=not self.state.is_external(pod))
        attempt = yield from self._search.find(case)
        evaluated = attempt.evaluation
        if evaluated is None:
            evaluated = yield from self._search.evaluate(msgspec.structs.replace(case, lift=attempt.lift))
        yield
        rejections = evaluated.rejections | dict.fromkeys(sorted(evaluated.others), evaluated.rejection_of_others)
        return Attempt(attempt.result, msgspec.structs.replace(evaluated, rejections=rejections, others=()))

    def find(self, pod: Pod, requirements: GpuRequirements, headroom: Headroom) -> Steps[ScheduleResult | None]:
        """Return the node that a pod would get with this headroom, by what is true in the last step.

        Nothing is reserved. Return None if the node does not take the pod any more; reasons may be missing.
        """
        before = self.state.ledger.changes.state
        attempt = yield from self._search.find(Case(pod, requirements, headroom, explain=False))
        result = attempt.result
        if not isinstance(result, Scheduled) or self._still_holds(pod, result, before, headroom):
            return result
        return self._confirm(pod, requirements, result, attempt.lift, headroom)

    def reserve_on(self, pod: Pod, node: str) -> ScheduleResult:
        """Choose cards for `pod` on the `node` that kube-scheduler chose, and reserve them.

        kube-scheduler has evaluated the node in every other respect. Where the loop schedules as well, that is done
        again: kube-scheduler does not know of the pods that are being bound, nor of what is held for others.
        """
        requirements = self._read(pod)
        if isinstance(requirements, Unschedulable):
            return requirements
        own, lower, headroom = lifts.own(self.state, pod), lifts.lower(self.state, pod), self._headroom(pod)
        result = self._reserve_lifting(own, pod, requirements, node, headroom)
        if isinstance(result, Scheduled) or not lower:
            return result
        again = self._reserve_lifting(own | lower, pod, requirements, node, headroom)
        return again if isinstance(again, Scheduled) else result

    def _reserve_lifting(
        self, lift: Lift, pod: Pod, requirements: GpuRequirements, node: str, headroom: Headroom
    ) -> ScheduleResult:
        """Reserve cards of a node, and give up what is lifted, if the node takes the pod without it."""
        if self._offered_node_filter is not None:
            nodes = finish(self._offered_node_filter.filter(pod, (node,), without=lift))
            for rejection in nodes.rejections.values():
                note = f"{node}: {rejection.coded_text}"
                return Unschedulable(note, frozenset({rejection.code.value}), path="single_node")
        evaluated = evaluation.evaluate_node(self.state, requirements, node, headroom, lift=lift)
        return self._assume(pod, finish(select(self.state, evaluated, path="single_node")), evaluated.lift)

    def requirements(self, pod: Pod) -> GpuRequirements | Unschedulable:
        """Return the GPU requirements of a pod, or the reason why it is held."""
        field = self.state.unsupported(pod) if not pod.excess else ""
        if field:
            return held(unsupported_fields.remedy(field))
        return self._read(pod)

    def demand(self, pod: Pod) -> Amounts | None:
        """Return what a pod requests as it counts for shares; None for one that requests no cards, or is held."""
        requirements = self.requirements(pod)
        if isinstance(requirements, Unschedulable) or not requirements.request:
            return None
        return amounts(self.state, pod, requirements)

    def forget(self, pod: Pod) -> None:
        """Release what was reserved for a pod that will not be bound."""
        self.state.forget(pod.uid)

    # ---- the steps of a cycle --------------------------------------------------------------------------------------

    def _read(self, pod: Pod) -> GpuRequirements | Unschedulable:
        if pod.excess:
            return held(pod.excess)
        try:
            return self.state.requirements.of(pod)
        except WaitingPodError as error:
            return waiting(error.reason, str(error))
        except AllocationError as error:
            return held(str(error))

    def _headroom(self, pod: Pod) -> Headroom:
        return self.state.requirements.headroom(pod)

    def _still_holds(self, pod: Pod, result: Scheduled, before: tuple[int, int], headroom: Headroom) -> bool:
        """Whether nothing has changed since the cycle began, or only what the fast path has taken into account."""
        if self.state.ledger.changes.state == before:
            return True
        is_current = (
            result.path == "cached" and not pod.spec.volumes and result.node not in self.state.closed_nodes.now()
        )
        return is_current and self._headroom(pod) == headroom

    def _confirm(
        self, pod: Pod, requirements: GpuRequirements, result: Scheduled, lift: Lift, headroom: Headroom
    ) -> Scheduled | None:
        """Evaluate the chosen node again; return None if it does not take the pod any more."""
        nodes = finish(self.state.node_filter.filter(pod, (result.node,), without=lift))
        if not nodes.fitting:
            return None
        evaluated = evaluation.evaluate_node(self.state, requirements, result.node, headroom, lift=lift)
        confirmed = finish(select(self.state, evaluated))
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
            planned = finish(instances.request(self.state, requirements, [node], self._headroom(pod), lift))
            return planned and self._assume(pod, planned, lift)
        if not self._still_holds(pod, result, before, headroom):
            if requirements.bound is not None and self.requirements(pod) != requirements:
                return None  # other cards are bound to its application now
            lift &= lifts.own(self.state, pod) | lifts.lower(self.state, pod)
            confirmed = self._confirm(pod, requirements, result, lift, self._headroom(pod))
            if confirmed is None:
                return None
            result = confirmed
        if pod.spec.volumes:
            bindings = self.state.node_filter.volume_bindings(pod, result.node)
            if bindings is None:
                return None
            result = msgspec.structs.replace(result, volumes=bindings)
        return self._assume(pod, result, lift)

    def _assume(self, pod: Pod, result: ScheduleResult, lift: Lift) -> ScheduleResult:
        """Reserve what was chosen, or request the MIG instances that the pod waits for; return the result.

        If cards are shared fairly, the result says which queue pays.
        """
        state = self.state
        if isinstance(result, Unschedulable):
            if result.requested_instances is not None:
                state.instance_requests.add(pod.uid, result.requested_instances)
            return result
        placed = Placed(pod, result.node, result.allocation, result.charges, result.volumes, is_assumed=True)
        state.assume(placed, lift=lift)
        if not state.fair_share.queues:
            return result
        return msgspec.structs.replace(result, charged_to=str(state.fair_share.use.owner(pod.uid)))
