"""Explains what preemption would do for a pod that waits, by the function that decides it."""

import msgspec

from allocation.steps import Steps
from scheduler.api.preemption_types import PreemptedPod, PreemptionExplanation
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser, NoPreemption
from scheduler.preemption.gang_choice import GangChooser
from scheduler.preemption.waiting_pod import gang_of


def preemption(chooser: Chooser, pod: Pod, *, gangs: GangChooser | None = None) -> Steps[PreemptionExplanation]:
    """Return the pods that a pending pod would preempt, or what is held for it; nothing is evicted or reserved.

    For a gang the holds of all its pods would have to be made, and kept from others meanwhile. So the explanation of
    its pods has what `gangs` found last, when it was tried.
    """
    state = chooser.state
    hold = state.holds.of(pod.uid)
    if hold is not None:
        together = [each for each in state.holds if each.unit == hold.unit]
        left = sum(1 for uid in frozenset[str]().union(*(each.awaited for each in together)) if uid in state.running)
        count = len(together) if hold.gang is not None else 0
        return PreemptionExplanation(hold.node, leaving=left, gang_pods=count, held=hold.cause)
    gang = gang_of(state, pod)
    if gang is not None and gangs is not None:
        return PreemptionExplanation(why=gangs.why(gang, pod), reclaim=chooser.eligibility.reclaims.words(pod))
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
