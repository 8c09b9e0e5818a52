"""Which running pods may be moved to another node: those that come back, and that no rule protects."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.fairness.queue_spec import QueueKey
from allocation.names import CONSTRAINT_KEYS, EVICTABLE, LIMITS, SHORT_KEYS
from allocation.quota import Headroom
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import SYSTEM_NAMESPACES, EligiblePod, protected_until
from scheduler.settings import ConsolidationSettings, PreemptionSettings
from scheduler.state.cluster_state import ClusterState

_RESTARTING: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""The kinds whose pods are alike, so that another one does as well. A Job counts an eviction as a failure."""
_ASKED: Final = CONSTRAINT_KEYS | SHORT_KEYS | {LIMITS}
"""The annotations that a pod has from its controller; the others were written with its Binding."""


class MovablePod(msgspec.Struct, frozen=True):
    """A running pod that may be moved.

    Attributes:
        eligible: the pod as the choice of victims sees it.
        replacement: what its controller creates when it is gone, with the same UID.
        requirements: the GPU requirements of the replacement.
        headroom: what the quotas leave to the replacement when the pod is gone.
        charges: what it holds of each card.
    """

    eligible: EligiblePod
    replacement: Pod
    requirements: GpuRequirements
    headroom: Headroom
    charges: tuple[Charge, ...]

    @property
    def pod(self) -> Pod:
        """The pod that runs."""
        return self.eligible.pod

    @property
    def memory_mib(self) -> int:
        """The card memory that it holds."""
        return sum(each.memory_mib for each in self.charges)


class Movable:
    """The rules of a cluster.

    Attributes:
        most_moves: how many pods are moved for one at most.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        budgets: DisruptionBudgets,
        settings: ConsolidationSettings,
        preemption: PreemptionSettings,
        unix: Callable[[], float],
    ) -> None:
        """Judge pods by `state`; `unix` returns the time in Unix seconds."""
        self.most_moves = settings.most_moves
        self._state = state
        self._budgets = budgets
        self._highest_priority = settings.highest_priority
        self._preemption = preemption
        self._unix = unix

    def on(self, node: str, waiting: Pod) -> Mapping[str, MovablePod]:
        """Return the pods of a node that may be moved for a pod that waits, by UID."""
        uids = [each.uid for each in self._state.ledger.reservations(node) if each.is_pod and not each.assumed]
        found = (self.pod(uid, waiting) for uid in uids)
        return {each.pod.uid: each for each in found if each is not None}

    def pod(self, uid: str, waiting: Pod) -> MovablePod | None:
        """Return a running pod if it may be moved for one that waits."""
        pod, reservation = self._state.running.get(uid), self._state.ledger.reservation(uid)
        if pod is None or reservation is None or not self._comes_back(pod):
            return None
        account = self._state.fair_share.use.owner(uid) or self._state.fair_share.key(pod)
        if self._is_protected(pod, account):
            return None
        if pod.spec.priority > min(self._highest_priority, waiting.spec.priority):
            return None
        budgets = self._budgets.of_pod(pod.metadata.namespace, pod.metadata.labels)
        if len(budgets) > 1 or any(each.is_rigid or not each.allowed for each in budgets):
            return None
        replacement = _replacement(pod)
        try:
            requirements = self._state.requirements.unlimited(replacement)
        except AllocationError:
            return None
        if requirements.claim or requirements.bound:
            return None  # another object names its cards
        eligible = EligiblePod(pod, account, budgets[0] if budgets else None)
        headroom = self._state.requirements.headroom(replacement, without={uid})
        return MovablePod(eligible, replacement, requirements, headroom, reservation.charges)

    def _comes_back(self, pod: Pod) -> bool:
        """Whether this scheduler will choose the node of another pod when this one is gone."""
        controller, said = pod.metadata.controller, pod.metadata.annotations.get(EVICTABLE)
        if controller is None or said == "false" or not self._is_placed_here(pod):
            return False
        return controller.kind in _RESTARTING or said == "true"

    def _is_placed_here(self, pod: Pod) -> bool:
        return self._state.is_ours(pod) and not self._state.is_external(pod) and not pod.excess

    def _is_protected(self, pod: Pod, account: QueueKey) -> bool:
        """Whether a pod ends already, must not be ended now, or may take too long for it; its queue pays for it."""
        if pod.metadata.deletion_timestamp or pod.metadata.namespace in SYSTEM_NAMESPACES:
            return True
        if pod.spec.termination_grace_period_seconds > self._preemption.nomination_seconds:
            return True
        until = protected_until(
            pod,
            min_runtime_seconds=self._state.fair_share.queues.spec(account).preemption.min_runtime_seconds,
            longest_protection_seconds=self._preemption.longest_protection_seconds,
        )
        return until is not None and self._unix() < until


def _replacement(pod: Pod) -> Pod:
    """Return a pod as its controller creates it: without a node, and without what was written with the Binding."""
    asked = {key: value for key, value in pod.metadata.annotations.items() if key in _ASKED}
    metadata = msgspec.structs.replace(pod.metadata, annotations=asked)
    return Pod(metadata, msgspec.structs.replace(pod.spec, node_name=""))
