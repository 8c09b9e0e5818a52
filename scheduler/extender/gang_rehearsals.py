"""Which gangs of kube-scheduler's pods fit nowhere as a whole, so that none of their pods has to come to a node.

A rehearsal reserves the cards of all pods of a gang in the state, in several steps, and forgets them. No other pod may
be evaluated meanwhile. A gang that fits nowhere is not rehearsed again before something changes, and then within a
budget of time in which namespaces take turns.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from scheduler.cycle.cycle import SchedulingCycle
from scheduler.extender.turns import Turns
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.gangs.gang import Gang, GangKey
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import GangOutcome
from scheduler.pacing import Pacer
from scheduler.preemption.waiting_pod import WaitingPod

_BUDGET_SECONDS: Final = 0.05
"""How long gangs are rehearsed in each review, whatever tenants change."""
_SHARE: Final = 0.2
"""The share of time that rehearsals take which are longer than that; a gang of thousands of pods may take seconds."""

_LATER: Final = "whether gang {} fits is evaluated in a moment: others were evaluated for long"

Plan = Mapping[str, str]
"""The node of each pod of a gang, by UID."""
NO_PLAN: Final[Plan] = MappingProxyType({})


class _Hopeless(msgspec.Struct, frozen=True):
    """A gang that fits nowhere as a whole, or was not evaluated yet, with the pods that waited, and why."""

    key: GangKey
    size: int
    uids: frozenset[str]
    note: str

    def is_of(self, gang: Gang) -> bool:
        """Whether the gang has the same pods as when it was rehearsed."""
        return gang.size == self.size and gang.waiting.keys() == self.uids


class GangRehearsals:
    """Rehearses gangs, and keeps those that fit nowhere.

    Attributes:
        alone: is held while pods are evaluated, or reserved; a rehearsal needs it for itself.
    """

    def __init__(self, cycle: SchedulingCycle, *, changes: Callable[[], int], metrics: Metrics) -> None:
        """Rehearse by `cycle`; `changes` returns the number of changes so far after which a gang may fit."""
        self.alone = asyncio.Lock()
        self._state = cycle.state
        self._cycle = GangCycle(cycle)
        self._changes = changes
        self._metrics = metrics
        self._seen = 0
        self._resume_at = -math.inf
        self._hopeless: dict[str, _Hopeless] = {}
        self._turns = Turns()

    def why(self, gang: Gang) -> str:
        """Return why a gang fits nowhere, as far as that is known without a rehearsal; empty if it may fit."""
        known = self._hopeless.get(str(gang.key))
        return known.note if known is not None and known.is_of(gang) else ""

    async def plan(self, gang: Gang) -> Plan:
        """Return a node for each pod of a gang, or for as many as fit; if it fits nowhere, `why` says so from now on.

        If the cluster changes too often, there is no plan, and the gang may fit. After long rehearsals a gang is
        rehearsed later, by `review`, and `why` says so.
        """
        if self._state.queue.clock() >= self._resume_at:
            return (await self._rehearse(gang))[0]
        self._keep(gang, frozenset(gang.waiting), _LATER.format(gang.key), since=-1)
        return NO_PLAN

    async def review(self) -> list[Gang]:
        """Rehearse the gangs again that fitted nowhere before the last change; return those that may fit now.

        The pods of these are to be evaluated again.
        """
        if self._state.queue.clock() < self._resume_at:
            return []
        changes = self._changes()
        if changes != self._seen:
            self._seen = changes
            self._turns.change()
        found, seconds = [], 0.0
        for name in self._turns.due():
            known = self._hopeless[name]
            gang = self._state.gangs.get(known.key)
            if gang is None or not gang.is_complete or gang.is_satisfied:
                self._drop(known.key)
                found += [gang] if gang is not None else []
                continue
            _, spent = await self._rehearse(gang)
            if not self.why(gang):
                found.append(gang)
            seconds += spent
            if seconds >= _BUDGET_SECONDS:
                break
        return found

    def _keep(self, gang: Gang, uids: frozenset[str], note: str, *, since: int) -> None:
        self._hopeless[str(gang.key)] = _Hopeless(gang.key, gang.size, uids, note)
        self._turns.set(gang.key.namespace, str(gang.key), since=since)

    def _drop(self, key: GangKey) -> None:
        del self._hopeless[str(key)]
        self._turns.drop(key.namespace, str(key))

    async def _rehearse(self, gang: Gang) -> tuple[Plan, float]:
        """Return a plan, empty for a gang that fits nowhere, and how many seconds that took."""
        pacer = Pacer()
        async with self.alone, self._state.decision, self._state.turn:
            waiting = tuple(gang.waiting.values())
            entries = [WaitingPod(pod, pod.uid) for pod in waiting]
            with self._metrics.gang_seconds.time():
                found = await pacer.run(self._cycle.schedule(gang, entries, is_rehearsal=True))
        if pacer.spent > _BUDGET_SECONDS:
            self._resume_at = self._state.queue.clock() + pacer.spent * (1 / _SHARE - 1)
        if isinstance(found, RejectedGang):
            self._metrics.gang_outcomes.labels(GangOutcome.REJECTED.value).inc()
            uids = frozenset(pod.uid for pod in waiting)
            self._keep(gang, uids, found.note(gang) or found.places(gang), since=self._turns.changes)
        elif str(gang.key) in self._hopeless:
            self._drop(gang.key)
        if not isinstance(found, ScheduledGang):
            return NO_PLAN, pacer.spent
        return {each.pod.uid: chosen.node for each, chosen in found.members}, pacer.spent
