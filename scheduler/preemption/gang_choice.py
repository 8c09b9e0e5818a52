"""Chooses the pods to preempt for a gang: for all of its pods that need places, in one decision, or none.

Each pod gets a place that is free, or one that becomes free when pods of lower priority go. What it will have is held
before the next pod is looked at, so that the gang needs no card, no quota and no disruption budget twice. Pods of the
gang itself are never preempted for it.
"""

from typing import Final

import msgspec

from allocation.steps import Steps
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.gang_holds import GangHolds, NoPlace, Place
from scheduler.gangs.gang import Gang, GangKey
from scheduler.objects import Pod
from scheduler.preemption.choice import NOWHERE, Chooser, NoPreemption
from scheduler.preemption.eligibility import EligiblePod
from scheduler.preemption.node_search import Preemption

_NOT_YET: Final = "the pods of its gang get nodes together: whether others are preempted for them is decided soon"
_KEPT: Final = 1024
"""The gangs of which is kept why no pod is preempted for them."""


class GangPreemption(msgspec.Struct, frozen=True):
    """The pods that have to go for a gang.

    Attributes:
        choices: the pods of the gang for which others have to go, each with its own choice; no victim is in two.
    """

    choices: tuple[tuple[Pod, Preemption], ...]

    @property
    def victims(self) -> tuple[EligiblePod, ...]:
        """All pods that have to be evicted."""
        return tuple(victim for _, choice in self.choices for victim in choice.victims)


class _Victims:
    """Finds places by preemption for the pods of one gang, in one attempt.

    Attributes:
        choices: the choices so far.
    """

    def __init__(self, chooser: Chooser) -> None:
        self.choices: list[tuple[Pod, Preemption]] = []
        self._chooser = chooser
        self._earlier: list[EligiblePod] = []

    def find(self, pod: Pod) -> Steps[Place | NoPlace]:
        """Return what a pod gets once others have gone."""
        found = yield from self._chooser.choose(pod, prefer=pod.status.nominated_node_name, earlier=self._earlier)
        if isinstance(found, NoPreemption):
            return NoPlace(found.why)
        self.choices.append((pod, found))
        self._earlier += found.victims
        if found.is_reclaim:
            self._chooser.eligibility.reclaims.note(pod, found.charges)
        shared = (each.pod.uid for each in self._earlier if each.pod.spec.node_name == found.node)
        awaited = found.leaving.union((each.pod.uid for each in found.victims), shared)
        return Place(found.node, found.charges, awaited)

    def undo(self) -> None:
        """Note that no pod was preempted after all."""
        for pod, choice in self.choices:
            if choice.is_reclaim:
                self._chooser.eligibility.reclaims.forget(pod)


class GangChooser:
    """Chooses for one gang after another."""

    def __init__(self, chooser: Chooser, cycle: SchedulingCycle) -> None:
        """Choose the victims by `chooser`, and find free places by `cycle`."""
        self._chooser = chooser
        self._holds = GangHolds(cycle)
        self._why: dict[GangKey, str] = {}

    def choose(self, gang: Gang, *, deadline: float | None = None) -> Steps[GangPreemption | NoPreemption | None]:
        """Choose the pods to preempt for a gang, and hold what its pods get, until the `deadline`.

        Return None if the gang changed meanwhile. Unless pods have to go, nothing is held.
        """
        attempts: list[_Victims] = []

        def attempt() -> _Victims:
            attempts.append(_Victims(self._chooser))
            return attempts[-1]

        found: _Victims | NoPlace = NoPlace()
        try:
            found = yield from self._holds.hold(gang, attempt, cause="preemption", deadline=deadline)
        finally:
            for each in attempts:
                if each is not found:
                    each.undo()
        if isinstance(found, _Victims):
            self._why.pop(gang.key, None)
            return GangPreemption(tuple(found.choices))
        if not found.why:
            return None
        self._keep(gang.key, found.why)
        return NoPreemption(found.why)

    def why(self, gang: Gang, pod: Pod) -> str:
        """Return why no pods are preempted for a gang, one of whose pods is given: what was found when it was tried."""
        if gang.unready:
            return gang.unready
        if held := sum(self._chooser.state.holds.of(uid) is not None for uid in gang.waiting):
            return f"cards are held for {held} other pods of its gang, which needs no more"
        if gang.key in self._why:
            return self._why[gang.key]
        lowest = self._chooser.lowest_priority
        has_victims = lowest is not None and pod.spec.priority > lowest
        return _NOT_YET if has_victims or self._chooser.eligibility.reclaims.has_waited(pod) else NOWHERE

    def _keep(self, key: GangKey, why: str) -> None:
        self._why.pop(key, None)
        self._why[key] = why
        if len(self._why) > _KEPT:
            del self._why[next(iter(self._why))]
