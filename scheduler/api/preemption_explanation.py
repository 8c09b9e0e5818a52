"""Explains what preemption would do for a pod that waits, by the function that decides it."""

import msgspec

from allocation.steps import Steps
from scheduler.api.preemption_types import PreemptedPod, PreemptionExplanation
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser, NoPreemption


def preemption(chooser: Chooser, pod: Pod) -> Steps[PreemptionExplanation]:
    """Return the pods that a pending pod would preempt, or what is held for it; nothing is evicted or reserved."""
    state = chooser.state
    hold = state.holds.of(pod.uid)
    if hold is not None:
        left = sum(1 for uid in hold.awaited if uid in state.running)
        return PreemptionExplanation(hold.node, leaving=left, held=hold.cause)
    found = yield from chooser.choose(pod)
    reclaim = chooser.eligibility.reclaims.words(pod)
    if isinstance(found, NoPreemption):
        return PreemptionExplanation(why=found.why, reclaim=reclaim)
    pods = (each.pod for each in found.victims)
    victims = tuple(PreemptedPod(each.metadata.namespace, each.metadata.name, each.spec.priority) for each in pods)
    reclaimed = sum(each.reclaimed_for is not None for each in found.victims)
    return PreemptionExplanation(
        found.node, len(victims), victims, len(found.leaving), reclaim=reclaim, reclaimed=reclaimed
    )


def within(explained: PreemptionExplanation, namespace: str) -> PreemptionExplanation:
    """Return the same without the names of pods of other namespaces."""
    own = tuple(each for each in explained.victims if each.namespace == namespace)
    return msgspec.structs.replace(explained, victims=own)
