"""Which pods may preempt others, and which pods they may preempt."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from allocation import duration
from allocation.errors import AllocationError
from allocation.fairness.queue_spec import QueueKey
from allocation.names import PREEMPTION_PROTECTION, SYSTEM_NAMESPACE
from allocation.victims import Candidate
from cluster.metadata import unix_seconds
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import Budget, DisruptionBudgets
from scheduler.preemption.reclaim import Reclaim, Reclaims
from scheduler.preemption.releasable import LEAVING
from scheduler.settings import PreemptionSettings
from scheduler.state.cluster_state import ClusterState

SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE})
"""Nothing is evicted here; policy tranche-preemption says the same. Only here may pods have any priority."""


class Eligibility:
    """The rules of a cluster.

    Attributes:
        budgets: the PodDisruptionBudgets.
        reclaims: which pods may preempt those of queues that have more than their entitlement.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        budgets: DisruptionBudgets,
        settings: PreemptionSettings,
        unix: Callable[[], float],
    ) -> None:
        """Judge pods by `state`; `unix` returns the time in Unix seconds."""
        self.budgets = budgets
        self.reclaims = Reclaims(state, unix=unix, is_leaving=lambda uid: self.level(uid) == LEAVING)
        self._state = state
        self._settings = settings
        self._unix = unix

    def objection(self, pod: Pod, requirements: GpuRequirements, *, with_gang: bool = False) -> str:
        """Return why a pod that waits preempts no other, whatever others there are; empty if it may.

        A pod that gets a node only together with others of its gang preempts none unless it does so `with_gang`.
        """
        key, highest = self._state.fair_share.key(pod), self._settings.highest_priority
        reasons = (
            (not self._settings.enabled, "scheduler.preemption.enabled is false"),
            (pod.spec.preemption_policy == "Never", "its preemptionPolicy is Never"),
            (
                pod.spec.priority > highest and pod.metadata.namespace not in SYSTEM_NAMESPACES,
                f"its priority {pod.spec.priority} is above scheduler.preemption.highest_priority ({highest})",
            ),
            (
                self._reach(key) == "Never" and self.reclaims.seconds_left(pod) is None,
                f"spec.preemption.reach of GpuQueue {key.name} is Never",
            ),
            (not requirements.request, "it requests no GPU"),
            (requirements.fixed is not None, "it has a static allocation"),
            (requirements.bound is not None, "only the cards that are bound to its application count"),
            (requirements.constraints.card_kind == "instance", "it requests MIG instances"),
            (requirements.is_gathering and not with_gang, "the pods of its gang get nodes together"),
            (
                _depends_on_pods(pod),
                "its node depends on other pods: podAffinity, podAntiAffinity or topologySpreadConstraints",
            ),
        )
        return next((why for is_so, why in reasons if is_so), "")

    def level(self, uid: str) -> int | None:
        """Return the priority of a running pod, or LEAVING; None if no pod may preempt it.

        A deletion may give a pod years to end, which an Eviction does not shorten. No pod waits for such a one.
        """
        pod = self._state.running.get(uid)
        if pod is None:
            return None
        if pod.metadata.deletion_timestamp:
            return LEAVING if self._ends_in_time(pod.metadata.deletion_timestamp) else None
        if not self._state.is_ours(pod) or pod.metadata.namespace in SYSTEM_NAMESPACES:
            return None
        return pod.spec.priority

    def _ends_in_time(self, deletion_timestamp: str) -> bool:
        """Whether a pod that is being deleted will end before a nomination does that begins now."""
        return unix_seconds(deletion_timestamp) <= self._unix() + self._settings.nomination_seconds

    def unit(self, uid: str, preemptor: Pod, reclaim: Reclaim | None = None) -> "EligibleUnit":
        """Return the pods that go together with a running one if `preemptor` may preempt all of them now, else none.

        It may preempt pods of lower priority within its reach, and those that `reclaim` allows. The pods of a gang go
        together; those that end already are left out.
        """
        gangs = self._state.node_cache.gangs
        members = [each for each in gangs.members(uid) if self.level(each) != LEAVING] or [uid]
        if gangs.has(preemptor, uid):
            return ()
        found = [self._eligible(member, preemptor, reclaim) for member in members]
        eligible = tuple(each for each in found if each is not None)
        if len(eligible) < len(members):
            return ()
        if len(members) == 1:
            return eligible
        return tuple(msgspec.structs.replace(each, unit=members[0]) for each in eligible)

    def _eligible(self, uid: str, preemptor: Pod, reclaim: Reclaim | None) -> "EligiblePod | None":
        """Return a running pod if `preemptor` may preempt it now, whatever gang it belongs to."""
        level, reservation = self.level(uid), self._state.ledger.reservation(uid)
        if level is None or level == LEAVING or reservation is None or reservation.assumed:
            return None
        pod, fair_share = self._state.running[uid], self._state.fair_share
        account, reclaimed_for = self.account(pod), None
        if level >= preemptor.spec.priority or not self._is_within_reach(pod, account, preemptor):
            if reclaim is None or not reclaim.allows(pod, account):
                return None
            reclaimed_for = reclaim.key
        until = protected_until(
            pod,
            min_runtime_seconds=fair_share.queues.spec(account).preemption.min_runtime_seconds,
            longest_protection_seconds=self._settings.longest_protection_seconds,
        )
        if until is not None and self._unix() < until:
            return None
        budgets = self.budgets.of_pod(pod.metadata.namespace, pod.metadata.labels)
        is_slow = pod.spec.termination_grace_period_seconds > self._settings.nomination_seconds
        if len(budgets) > 1 or any(each.is_rigid for each in budgets):
            may_violate = self._settings.rigid_budgets == "violate"
            found = EligiblePod(pod, account, is_slow=is_slow, violates=True, reclaimed_for=reclaimed_for)
            return found if may_violate else None
        if any(not each.allowed for each in budgets):
            return None
        return EligiblePod(pod, account, budgets[0] if budgets else None, is_slow, reclaimed_for=reclaimed_for)

    def account(self, pod: Pod) -> QueueKey:
        """Return the queue that pays for a running pod."""
        fair_share = self._state.fair_share
        return fair_share.use.owner(pod.uid) or fair_share.key(pod)

    def _reach(self, key: QueueKey) -> str:
        return self._state.fair_share.queues.spec(key).preemption.reach

    def _is_within_reach(self, pod: Pod, account: QueueKey, preemptor: Pod) -> bool:
        """Whether a pod is within the reach of the preemptor's queue, and not of a higher tier."""
        queues, key = self._state.fair_share.queues, self._state.fair_share.key(preemptor)
        if queues.spec(account).priority > queues.spec(key).priority:
            return False
        reach = self._reach(key)
        if reach == "Queue":
            return account == key
        is_own = pod.metadata.namespace == preemptor.metadata.namespace
        return reach == "Cluster" or (reach == "Namespace" and is_own)


class EligiblePod(msgspec.Struct, frozen=True, dict=True):
    """A running pod that may be preempted.

    Attributes:
        pod: its last known state.
        account: the queue that pays for it.
        budget: the disruption budget that permits its eviction.
        is_slow: whether its grace period is longer than a nomination lasts.
        violates: whether its end violates a disruption budget that never permits it.
        reclaimed_for: the queue that reclaims its cards; None if it has a lower priority than its preemptor.
        unit: which pods go together: the UID of one of them, the same for all; empty for a pod that goes alone.
    """

    pod: Pod
    account: QueueKey
    budget: Budget | None = None
    is_slow: bool = False
    violates: bool = False
    reclaimed_for: QueueKey | None = None
    unit: str = ""

    @cached_property
    def candidate(self) -> Candidate:
        """The pod as the choice of victims sees it, on one node after another if it counts for a quota."""
        pod, budget = self.pod, self.budget
        guard, since = f"{budget.namespace}/{budget.name}" if budget is not None else "", started(pod)
        seconds = unix_seconds(since) if since else 0.0
        return Candidate(pod.uid, pod.spec.priority, seconds, guard, self.is_slow, self.violates)


EligibleUnit = tuple[EligiblePod, ...]
"""Pods that are preempted together: those of a gang, or one."""


def started(pod: Pod) -> str:
    """Return the timestamp from which the run time of a pod counts; empty if it has none."""
    return pod.status.start_time or pod.metadata.creation_timestamp or ""


def _depends_on_pods(pod: Pod) -> bool:
    """Whether the nodes that take a pod depend on which other pods run."""
    affinity = pod.spec.affinity
    terms = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    return any(each is not None and each.required for each in terms) or any(
        each.when_unsatisfiable == "DoNotSchedule" for each in pod.spec.topology_spread_constraints
    )


def protected_until(pod: Pod, *, min_runtime_seconds: int, longest_protection_seconds: float) -> float | None:
    """Return until when, in Unix seconds, a pod is protected from preemption, or None if nothing protects it.

    Its annotation counts from its creation and for no longer than `longest_protection_seconds`; an unreadable one does
    not protect it. The `min_runtime_seconds` of its queue count from its start, or from its creation until its node has
    started it. At the returned time the pod is not protected any more.
    """
    text = pod.metadata.annotations.get(PREEMPTION_PROTECTION)
    if text is None and not min_runtime_seconds:
        return None
    created = pod.metadata.creation_timestamp
    ends = []
    if text is not None and created and (protected := _seconds(text)):
        ends.append(unix_seconds(created) + min(protected, longest_protection_seconds))
    if min_runtime_seconds and (started := pod.status.start_time or created):
        ends.append(unix_seconds(started) + min_runtime_seconds)
    return max(ends, default=None)


@lru_cache(maxsize=1024)
def _seconds(text: str) -> float:
    try:
        return duration.seconds(text)
    except AllocationError:
        return 0.0
