"""Finds a node for a pod: a list of ways, of which the first that has a result counts. Nothing is reserved here.

A way that is not for the pod, or leaves its result to a later one, has none. The last way evaluates every node.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from allocation.quota import Headroom
from allocation.reasons import NodeReason, PodReason
from allocation.steps import Steps
from scheduler.cycle import evaluation, instances, lifts
from scheduler.cycle.demand import demand_of
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.fast_path import FastPath
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.cycle.preference import prefer
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable, waiting
from scheduler.cycle.selection import select
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.scoring.node_scorer import NodeScorer
from scheduler.state.cluster_state import ClusterState

_NOT_BOUND: Final = frozenset({NodeReason.NodeNotBound.value})


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


class Case(msgspec.Struct, frozen=True):
    """A pod that needs a node.

    Attributes:
        pod: the pod.
        requirements: its GPU requirements.
        headroom: what its quotas still allow it.
        explain: whether the reasons are needed if no node takes it.
        lift: the reservations that are free for it.
        creates_instances: whether an agent may be asked to create MIG instances for it.
    """

    pod: Pod
    requirements: GpuRequirements
    headroom: Headroom
    explain: bool = True
    lift: Lift = NO_LIFT
    creates_instances: bool = True


class Search:
    """Finds nodes in the state of the cluster."""

    def __init__(self, state: ClusterState, *, scorer: NodeScorer, fast_path: FastPath) -> None:
        """Order nodes by the preferences that `scorer` scores; `fast_path` has the rankings of nodes."""
        self._state = state
        self._scorer = scorer
        self._fast_path = fast_path
        self._shorter: tuple[Callable[[Case], Steps[Attempt | None]], ...] = (
            self._by_bindings,
            self._by_few_nodes,
            self._by_ranking,
        )
        """The ways that come before the one that evaluates all nodes."""

    def find(self, case: Case) -> Steps[Attempt]:
        """Return the result for a pod; what is held for pods of lower rank is its last resort."""
        volumes = self._state.node_filter.volumes_of(case.pod)
        if volumes is not None and volumes.problem:
            return Attempt(waiting(PodReason.VolumeClaimNotReady, volumes.problem))
        own = lifts.own(self._state, case.pod)
        attempt = yield from self._first(msgspec.structs.replace(case, lift=own) if own else case)
        lower = NO_LIFT if isinstance(attempt.result, Scheduled) else lifts.lower(self._state, case.pod)
        return (yield from self._by_lower_holds(case, attempt, lower)) if lower else attempt

    def evaluate(self, case: Case, *, among: Sequence[str] | None = None) -> Steps[Evaluation]:
        """Evaluate the nodes `among`, or every node, and order those that take the pod by its preferences."""
        evaluated = yield from evaluation.evaluate(
            self._state, case.pod, case.requirements, case.headroom, among=among, lift=case.lift
        )
        return (
            yield from prefer(
                case.pod,
                evaluated,
                scorer=self._scorer,
                node_cache=self._state.node_cache,
                ledger=self._state.ledger,
                headroom=case.headroom,
            )
        )

    # ---- the ways --------------------------------------------------------------------------------------------------

    def _first(self, case: Case) -> Steps[Attempt]:
        """Return the result of the first way that has one."""
        for way in self._shorter:
            attempt = yield from way(case)
            if attempt is not None:
                return attempt
        return (yield from self._by_all_nodes(case))

    def _by_bindings(self, case: Case) -> Steps[Attempt | None]:
        """Return the result on the few nodes with cards that are bound to the pod's application."""
        if case.requirements.bound is None:
            return None
        evaluated = yield from self.evaluate(case, among=self._state.rejected_nodes.candidates(case.requirements))
        if evaluated.scores:
            return (yield from self._selected(case, evaluated))
        if not case.explain:
            return Attempt(Unschedulable("", evaluated.reasons() | _NOT_BOUND), lift=case.lift)
        return (yield from self._by_all_nodes(case))

    def _by_few_nodes(self, case: Case) -> Steps[Attempt | None]:
        """Return the result on the only nodes that have the volumes of the pod, if they are few."""
        few = self._state.node_filter.few_candidates(case.pod)
        if few is None:
            return None
        evaluated = yield from self.evaluate(case, among=few)
        if evaluated.scores:
            return (yield from self._selected(case, evaluated))
        kind = self._kind(case)
        known = self._fast_path.rejected(kind, explain=case.explain) if kind is not None else None
        return Attempt(known, lift=case.lift) if known is not None else (yield from self._by_all_nodes(case))

    def _by_ranking(self, case: Case) -> Steps[Attempt | None]:
        """Return the result of the fast path."""
        if not self._is_ranked(case):
            return None
        found = yield from self._fast_path.find(case.pod, case.requirements, case.headroom, explain=case.explain)
        return Attempt(found) if found is not None else None

    def _by_all_nodes(self, case: Case) -> Steps[Attempt]:
        """Evaluate every node that may take the pod; the fast path remembers the reasons if none does."""
        changes, kind = self._state.ledger.changes, self._kind(case)
        before = changes.state
        evaluated = yield from self.evaluate(case)
        found = yield from self._conclude(case, evaluated)
        if isinstance(found, Unschedulable) and kind is not None:
            if changes.state == before:
                self._fast_path.remember(kind, found)
            found = msgspec.structs.replace(found, kind=kind)
        return Attempt(found, evaluated, case.lift)

    def _by_lower_holds(self, case: Case, attempt: Attempt, lower: Lift) -> Steps[Attempt]:
        """Return the result on the nodes where cards are held for pods of lower rank, else `attempt`.

        Tried without some holds, other pods of its kind may be rejected where it is not.
        """
        reservation, lift = self._state.ledger.reservation, attempt.lift | lower
        nodes = sorted({each.node for uid in lower if (each := reservation(uid)) is not None})
        lifted = msgspec.structs.replace(case, lift=lift)
        evaluated = yield from self.evaluate(lifted, among=nodes)
        if evaluated.scores:
            return (yield from self._selected(lifted, evaluated))
        return msgspec.structs.replace(attempt, result=msgspec.structs.replace(attempt.result, kind=None))

    # ---- results ---------------------------------------------------------------------------------------------------

    def _selected(self, case: Case, evaluated: Evaluation) -> Steps[Attempt]:
        """Return the best of a few nodes that take the pod; all others do not."""
        found = yield from select(self._state, evaluated, total=len(self._state.node_cache))
        return Attempt(found, lift=case.lift)

    def _conclude(self, case: Case, evaluated: Evaluation) -> Steps[ScheduleResult]:
        """Return the best node, or the MIG instances that the pod waits for, or the reasons why no node takes it."""
        found = yield from select(self._state, evaluated)
        if isinstance(found, Scheduled):
            return found
        demand = yield from demand_of(self._state, case.pod, evaluated)
        if case.requirements.is_gathering or not case.creates_instances:
            # What an agent makes for a pod of a gang would be kept from others while the gang waits.
            return msgspec.structs.replace(found, demand=demand)
        waits = yield from instances.wait(self._state, case.pod, evaluated, case.headroom)
        return waits or msgspec.structs.replace(found, demand=demand)

    def _is_ranked(self, case: Case) -> bool:
        """Whether the fast path evaluates the pod: its rankings know no lifts, and no rejections of this pod only."""
        requirements = case.requirements
        is_free = bool(requirements.request) and requirements.fixed is None and requirements.bound is None
        return is_free and not case.lift and not self._state.rejected_nodes.own(requirements)

    def _kind(self, case: Case) -> bytes | None:
        """Return the kind of a pod that the fast path evaluates; None in a fleet with MIG, where each pod may wait."""
        if not self._is_ranked(case) or self._state.ledger.mig_nodes:
            return None
        return self._fast_path.kind(case.pod, case.requirements, case.headroom)
