"""Holds cards for pods that have waited too long, so that a stream of small pods cannot keep a large one waiting.

The pods of a gang that get nodes together are one unit: cards are held for all of them or for none, and what is held
for them ends together.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.steps import Steps
from cluster.events import Recorder
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.gang_holds import GangHolds, NoPlace, Place, headroom_of
from scheduler.gangs.gang import Gang, GangKey
from scheduler.gpu_requirements import GpuRequirements
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.patience import held_cards
from scheduler.queue.entry import Entry

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 5.0
_NODES_PER_HOLD: Final = 20
"""At most one node of this number has held cards; at least one node."""


_MOST_EVENTS: Final = 64
"""The pods of a gang on which one event is recorded each."""


class _Progress(msgspec.Struct, frozen=True):
    """How many of the awaited pods were left when one of them ended last, and when that was."""

    left: int
    since: float


class Patience:
    """Gives the first pod of a queue a hold when it has waited for its patience, or its gang holds for all its pods.

    Each queue has holds for one pod or gang at a time. When nothing more becomes free for them they end, and the queue
    waits for its patience again.
    """

    def __init__(
        self,
        cycle: SchedulingCycle,
        *,
        recorder: Recorder,
        patience_seconds: float,
        idle_seconds: float,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Hold cards after `patience_seconds` unless the GpuQueue says otherwise, as long as this replica leads.

        A hold ends when none of the pods that it awaits has ended for `idle_seconds`.
        """
        self._cycle = cycle
        self._recorder = recorder
        self._patience = patience_seconds
        self._idle = idle_seconds
        self._gang_holds = GangHolds(cycle)
        self._progress: dict[GangKey | str, _Progress] = {}
        """Of the holds, by gang or pod."""
        self._gave_up: dict[QueueKey, float] = {}
        """When the last hold of a queue with waiting pods ended without success."""
        self._is_trusted = is_trusted

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._is_trusted():
            await self.look()
            shortest = min((each for each in self._patiences() if each), default=_PERIOD_SECONDS)
            await asyncio.sleep(min(_PERIOD_SECONDS, shortest))

    async def look(self) -> None:
        """Release the holds that have become pointless, and give new ones to the pods that have waited longest."""
        state = self._cycle.state
        async with state.turn:  # while a gang is being scheduled some holds are missing for moments
            await Pacer().run(self._release())
        most = max(1, len(state.ledger.nodes) // _NODES_PER_HOLD)
        impatient = await Pacer().run(self._impatient())
        for entry in sorted(impatient, key=self._waits_since):
            # Nominations end by themselves, and have a limit of their own.
            if len(state.holds.patient_units) >= most:
                return
            async with state.turn:
                await Pacer().run(self._hold(entry))

    def _release(self) -> Steps[None]:
        state = self._cycle.state
        units: dict[GangKey | str, list[Hold]] = {}
        for hold in state.holds:
            if not hold.is_nomination:
                units.setdefault(hold.unit, []).append(hold)
        self._progress = {unit: each for unit, each in self._progress.items() if unit in units}
        self._gave_up = {key: at for key, at in self._gave_up.items() if key in state.queue.waiting}
        for unit, holds in units.items():
            if self._is_idle(unit, holds):
                self._give_up(holds)
            elif not (yield from self._are_possible(holds)):
                for hold in holds:
                    state.release_hold(hold.uid)

    def _impatient(self) -> Steps[list[Entry]]:
        """Return the first pod of each queue that has waited for its patience, unless the queue has a hold.

        The first pod of a gang stands for all of them.
        """
        queue, state = self._cycle.state.queue, self._cycle.state
        now, served = queue.clock(), {hold.key for hold in state.holds if not hold.is_nomination}

        def has_waited(entry: Entry) -> bool:
            patience = self._patience_of(entry)
            if not patience or entry.key in served or state.holds.of(entry.pod.uid) is not None:
                return False
            return now - self._waits_since(entry) >= patience

        return (yield from queue.competition.demanding(has_waited))

    def _waits_since(self, entry: Entry) -> float:
        """Return since when a pod waits for its turn: after a hold without success, its queue waits like a new one."""
        return max(entry.waits_since, self._gave_up.get(entry.key, entry.waits_since))

    def _patience_of(self, entry: Entry) -> float:
        own = self._cycle.state.fair_share.queues.spec(entry.key).patience_seconds
        return self._patience if own is None else float(own)

    def _patiences(self) -> Iterator[float]:
        """Iterate over all settings."""
        yield self._patience
        for queue in self._cycle.state.fair_share.queues:
            if queue.spec.patience_seconds is not None:
                yield float(queue.spec.patience_seconds)

    def _hold(self, entry: Entry) -> Steps[None]:
        state, pod = self._cycle.state, entry.pod
        requirements = self._cycle.requirements(pod)
        if not isinstance(requirements, GpuRequirements):
            return
        gang = state.gangs.of(pod.uid)
        if requirements.is_gathering and gang is not None:
            yield from self._hold_for_gang(entry, gang)
            return
        headroom = state.requirements.headroom(pod)
        cards = yield from held_cards.choose(state, pod, requirements, headroom)
        if cards is None or state.queue.get(pod.uid) is not entry or entry.place != "unschedulable":
            return
        rank = state.fair_share.pod_rank(pod)
        state.holds.add(Hold(pod.uid, entry.key, rank, cards.node, cards.charges, cards.awaited), pod)
        self._begin(entry, pod.uid, [pod])

    def _hold_for_gang(self, entry: Entry, gang: Gang) -> Steps[None]:
        if any(self._cycle.state.holds.of(uid) is not None for uid in gang.waiting):
            return
        finder = partial(_EndingPods, self._cycle)
        if isinstance((yield from self._gang_holds.hold(gang, finder, cause="patience")), NoPlace):
            return
        self._begin(entry, gang.key, [pod for uid, pod in gang.waiting.items() if self._cycle.state.holds.of(uid)])

    def _begin(self, entry: Entry, unit: GangKey | str, pods: Sequence[Pod]) -> None:
        """Note that cards are held from now on for the pod of `entry`, or for those of its gang."""
        state = self._cycle.state
        held = [(pod, hold) for pod in pods if (hold := state.holds.of(pod.uid)) is not None]
        awaited = frozenset[str]().union(*(hold.awaited for _, hold in held))
        self._progress[unit] = _Progress(len(awaited), state.queue.clock())
        state.queue.wake([pod.uid for pod in pods])  # from now on it is tried on its own
        waited = state.queue.clock() - entry.waits_since
        for pod, hold in held[:_MOST_EVENTS]:
            uuids, count = ", ".join(charge.uuid for charge in hold.charges), len(hold.awaited)
            pods_finish = "1 pod finishes" if count == 1 else f"{count} pods finish"
            note = f"after {waited:.0f} s, reserving {uuids} on node {hold.node} until {pods_finish}"
            if hold.gang is not None:
                note += f", for {len(held)} pods of gang {hold.gang}"
            self._report(pod, reason="CardsHeld", note=note)

    def _is_idle(self, unit: GangKey | str, holds: Sequence[Hold]) -> bool:
        """Whether none of the pods that holds await has ended for a long time."""
        ledger, now = self._cycle.state.ledger, self._cycle.state.queue.clock()
        awaited = frozenset[str]().union(*(hold.awaited for hold in holds))
        left = sum(1 for uid in awaited if ledger.reservation(uid) is not None)
        progress = self._progress.get(unit)
        if progress is None or left < progress.left:
            self._progress[unit] = progress = _Progress(left, now)
        return now - progress.since >= self._idle

    def _give_up(self, holds: Sequence[Hold]) -> None:
        """End the holds for a pod, or for those of a gang, without success."""
        state = self._cycle.state
        for place, hold in enumerate(holds):
            pod = state.queue.pod(hold.uid)
            state.release_hold(hold.uid)
            self._gave_up[hold.key] = state.queue.clock()
            if pod is not None and place < _MOST_EVENTS:
                awaited = f"the pods that have to finish on node {hold.node}"
                if hold.gang is not None:
                    awaited = f"the pods that have to finish for gang {hold.gang}"
                note = f"none of {awaited} has finished for {self._idle:.0f} s: no cards are reserved any more"
                self._report(pod, reason="CardsReleased", note=note)

    def _report(self, pod: Pod, *, reason: str, note: str) -> None:
        log.info("pod %s: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid})
        self._recorder.record(pod.reference, type="Normal", reason=reason, action="Scheduling", note=note)

    def _are_possible(self, holds: Sequence[Hold]) -> Steps[bool]:
        """Whether the node of each hold takes its pod once the pods there have ended, and enough of a gang have one."""
        state, key = self._cycle.state, holds[0].gang
        gang = state.gangs.get(key) if key is not None else None
        if key is not None and (gang is None or len(holds) < gang.size - gang.placed):
            return False
        for hold in holds:
            yield
            if not self._is_possible(hold):
                return False
        return True

    def _is_possible(self, hold: Hold) -> bool:
        state = self._cycle.state
        entry = state.queue.get(hold.uid)
        requirements = self._cycle.requirements(entry.pod) if entry is not None else None
        if entry is None or not isinstance(requirements, GpuRequirements):
            return False
        if requirements.is_gathering and hold.gang is None:
            return False  # others of its gang have ended meanwhile, so it is of no use alone
        headroom = headroom_of(state, entry.pod)
        if headroom is None:
            return False
        return held_cards.is_possible(state, entry.pod, requirements, headroom, hold.node, hold=hold.reservation)


class _EndingPods:
    """Finds places for the pods of a gang where other pods end by themselves."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle

    def find(self, pod: Pod) -> Steps[Place | NoPlace]:
        """Return what a pod gets once others have ended."""
        state, requirements, headroom = (
            self._cycle.state,
            self._cycle.requirements(pod),
            headroom_of(self._cycle.state, pod),
        )
        if not isinstance(requirements, GpuRequirements) or headroom is None:
            return NoPlace("it has no place in its quotas")
        found = yield from held_cards.choose(state, pod, requirements, headroom)
        return NoPlace("it fits nowhere") if found is None else Place(found.node, found.charges, found.awaited)
