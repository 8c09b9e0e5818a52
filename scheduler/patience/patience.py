"""Holds cards for pods that have waited too long, so that a stream of small pods cannot keep a large one waiting."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.steps import Steps
from cluster.events import Recorder
from scheduler.cycle.cycle import SchedulingCycle
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


class _Progress(msgspec.Struct, frozen=True):
    """How many of the awaited pods were left when one of them ended last, and when that was."""

    left: int
    since: float


class Patience:
    """Gives the first pod of a queue a hold when it has waited for its patience; one hold for each queue at a time.

    A hold for which nothing more becomes free ends, and its queue waits for its patience again.
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
        self._progress: dict[str, _Progress] = {}
        """Of the holds, by pod."""
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
        self._progress = {uid: each for uid, each in self._progress.items() if state.holds.of(uid) is not None}
        self._gave_up = {key: at for key, at in self._gave_up.items() if key in state.queue.waiting}
        for hold in state.holds:
            if hold.is_nomination:
                continue
            if self._is_idle(hold):
                self._give_up(hold)
            elif not await Pacer().run(self._is_possible(hold)):
                state.release_hold(hold.uid)
        most = max(1, len(state.ledger.nodes) // _NODES_PER_HOLD)
        impatient = await Pacer().run(self._impatient())
        for entry in sorted(impatient, key=self._waits_since):
            # Nominations end by themselves, and have a limit of their own.
            if len(state.holds) - len(state.holds.nominations) >= most:
                return
            async with state.turn:
                await Pacer().run(self._hold(entry))

    def _impatient(self) -> Steps[list[Entry]]:
        """Return the first pod of each queue that has waited for its patience, unless the queue has a hold."""
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
        return max(entry.since, self._gave_up.get(entry.key, entry.since))

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
        if not isinstance(requirements, GpuRequirements) or requirements.is_gathering:
            return
        headroom = state.requirements.headroom(pod)
        cards = yield from held_cards.choose(state, pod, requirements, headroom)
        if cards is None or state.queue.get(pod.uid) is not entry or entry.place != "unschedulable":
            return
        rank = state.fair_share.pod_rank(pod)
        state.holds.add(Hold(pod.uid, entry.key, rank, cards.node, cards.charges, cards.awaited), pod)
        waited, count = state.queue.clock() - entry.since, len(cards.awaited)
        uuids = ", ".join(charge.uuid for charge in cards.charges)
        pods_finish = "1 pod finishes" if count == 1 else f"{count} pods finish"
        note = f"after {waited:.0f} s, reserving {uuids} on node {cards.node} until {pods_finish}"
        self._progress[pod.uid] = _Progress(count, state.queue.clock())
        state.queue.wake((pod.uid,))  # from now on it is tried on its own
        self._report(pod, reason="CardsHeld", note=note)

    def _is_idle(self, hold: Hold) -> bool:
        """Whether none of the pods that a hold awaits has ended for a long time."""
        ledger, now = self._cycle.state.ledger, self._cycle.state.queue.clock()
        left = sum(1 for uid in hold.awaited if ledger.reservation(uid) is not None)
        progress = self._progress.get(hold.uid)
        if progress is None or left < progress.left:
            self._progress[hold.uid] = progress = _Progress(left, now)
        return now - progress.since >= self._idle

    def _give_up(self, hold: Hold) -> None:
        """End a hold without success."""
        state = self._cycle.state
        pod = state.queue.pod(hold.uid)
        state.release_hold(hold.uid)
        self._gave_up[hold.key] = state.queue.clock()
        if pod is not None:
            awaited = f"the pods that have to finish on node {hold.node}"
            note = f"none of {awaited} has finished for {self._idle:.0f} s: no cards are reserved any more"
            self._report(pod, reason="CardsReleased", note=note)

    def _report(self, pod: Pod, *, reason: str, note: str) -> None:
        log.info("pod %s: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid})
        self._recorder.record(pod.reference, type="Normal", reason=reason, action="Scheduling", note=note)

    def _is_possible(self, hold: Hold) -> Steps[bool]:
        """Whether the node of a hold takes its pod once the pods there have ended."""
        yield
        state = self._cycle.state
        entry = state.queue.get(hold.uid)
        requirements = self._cycle.requirements(entry.pod) if entry is not None else None
        if entry is None or not isinstance(requirements, GpuRequirements):
            return False
        pod = entry.pod
        headroom = state.requirements.headroom(pod)
        return held_cards.is_possible(state, pod, requirements, headroom, hold.node, hold=hold.reservation)
