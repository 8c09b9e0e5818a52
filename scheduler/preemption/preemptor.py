"""Preempts pods of lower priority for pods that fit nowhere, in both modes, and for gangs where the loop schedules.

For each pod the controller chooses and holds in one step; then the victims are evicted while others are scheduled.
What becomes free is held for the pod until it is bound, deleted or changed, or until a deadline. For a gang it chooses
for all pods that need places, and what is held for them ends together.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from allocation.steps import Steps
from scheduler.gangs.gang import Gang, GangKey
from scheduler.holds import Hold
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import EvictionOutcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.preemption.attempts import Attempts
from scheduler.preemption.choice import Chooser, NoPreemption
from scheduler.preemption.eligibility import EligiblePod
from scheduler.preemption.evictor import Evictor, Nomination
from scheduler.preemption.gang_choice import GangChooser, GangPreemption
from scheduler.preemption.nominees import Nominee, Nominees
from scheduler.preemption.releasable import LEAVING
from scheduler.preemption.waiting_pod import WaitingPod, WaitingPods, gang_of
from scheduler.settings import PreemptionSettings

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 0.5

_Choice = tuple[Nominee, list[Nomination]]
"""A nominee, and the victims for each of its pods."""


class Preemptor:
    """The preemptions of one term.

    Attributes:
        chooser: chooses the pods to preempt.
        gang_chooser: chooses them for gangs; None where kube-scheduler has the queue.
    """

    def __init__(
        self,
        chooser: Chooser,
        evictor: Evictor,
        *,
        gang_chooser: GangChooser | None,
        waiting: WaitingPods,
        still_waits: Callable[[Pod], bool],
        metrics: Metrics,
        settings: PreemptionSettings,
        clock: Callable[[], float],
        is_trusted: Callable[[], bool],
    ) -> None:
        """Preempt for the pods that are `waiting`, as long as they still do and this replica leads."""
        self.chooser = chooser
        self.gang_chooser = gang_chooser
        self._evictor = evictor
        self._waiting = waiting
        self._still_waits = still_waits
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._is_trusted = is_trusted
        self._attempts = Attempts(clock)
        self._nominees = Nominees(chooser.state, most=settings.concurrent, still_waits=still_waits)
        self._under_way: dict[GangKey | str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        if not self._settings.enabled:
            return
        try:
            while self._is_trusted():
                begin = self._clock()
                has_tried = await self.look()
                # Others are scheduled meanwhile: searches take at most half of the time.
                took = self._clock() - begin
                await asyncio.sleep(min(took, _PERIOD_SECONDS) if has_tried else _PERIOD_SECONDS)
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def restore(self, pods: Iterable[Pod]) -> None:
        """Hold cards again for the pods for which an earlier leader has preempted others, before any pod is scheduled.

        If more has to go than is leaving, the choice is made again, and the nominated node comes first.
        """
        nominated = [each for each in pods if each.status.nominated_node_name and not each.spec.node_name]
        gangs: set[GangKey] = set()
        for pod in sorted(nominated, key=lambda pod: -pod.spec.priority) if self._settings.enabled else ():
            is_ours = self.chooser.state.is_ours(pod) and not pod.finished and not pod.metadata.deletion_timestamp
            gang = gang_of(self.chooser.state, pod)
            if not is_ours or (gang is not None and gang.key in gangs) or not self._nominees.may_join(pod):
                continue
            if gang is not None:
                gangs.add(gang.key)
            if gang is not None and not gang.is_complete:
                await self._clear(tuple(gang.waiting.values()))
            else:
                await self._preempt(WaitingPod(pod, pod.uid, gang=gang))

    async def look(self) -> bool:
        """End the nominations that are over, and preempt for the first pods that wait; return whether any was tried."""
        await self._end_nominations()
        pacer, has_tried = Pacer(), False
        await pacer.run(self.chooser.refresh())
        lowest, reclaims = self.chooser.lowest_priority, self.chooser.eligibility.reclaims
        if lowest is None:
            return False

        def has_victims(pod: Pod) -> bool:
            return pod.spec.priority > lowest or reclaims.has_waited(pod)

        most = self._settings.concurrent
        for each in await pacer.run(self._waiting(has_victims, self._may, most)):
            if len(self._under_way) >= most or not self._is_trusted():
                break
            if self._may(each) and self._nominees.may_join(each.pod):
                has_tried = True
                await self._preempt(each)
        return has_tried

    def _may(self, waiting: WaitingPod) -> bool:
        """Whether preemption may be tried now for a pod that waits, or for its gang."""
        holds, gang = self.chooser.state.holds, waiting.gang
        if gang is not None and (self.gang_chooser is None or not gang.is_complete):
            return False
        pods = (waiting.pod.uid,) if gang is None else tuple(gang.waiting)
        is_nominee = any((hold := holds.of(uid)) is not None and hold.is_nomination for uid in pods)
        return not is_nominee and self._attempts.may(waiting.pod, waiting.kind)

    async def _preempt(self, waiting: WaitingPod) -> None:
        """Choose the pods to preempt for one, or for its gang, hold what that frees, and begin with the evictions."""
        pod, gang = waiting.pod, waiting.gang
        pacer, queue = Pacer(), self.chooser.state.queue
        async with self.chooser.state.turn:
            choice = await pacer.run(self._choose_for_gang(pod, gang) if gang is not None else self._choose(waiting))
        if entry := queue.get(pod.uid):
            queue.charge(entry, pacer.spent, placed=False)
        if choice is None:
            return
        who = f"gang {gang.key}" if gang is not None else f"pod {pod}"
        fields = {"pod": str(pod), "uid": pod.uid}
        if isinstance(choice, NoPreemption):
            self._attempts.futile(waiting.kind)
            log.debug("%s: no preemption candidates: %s", who, choice.why, extra=fields)
            await self._clear([pod] if gang is None else list(gang.waiting.values()))
            return
        self._attempts.found(waiting.kind)
        nominee, nominations = choice
        victims = sum(len(each.victims) for each in nominations)
        log.info("%s: %d pods are preempted for %d", who, victims, len(nominations), extra=fields)
        if victims:
            task = self._under_way[nominee.unit] = asyncio.create_task(self._evict(nominee, nominations))
            task.add_done_callback(lambda _: self._evicted(nominee))
        excess = self._nominees.excess(pod)
        if excess is not None:
            await self._give_up(excess)

    def _choose(self, waiting: WaitingPod) -> Steps[_Choice | NoPreemption | None]:
        """Choose, and hold what was chosen in the same step; return None if the pod does not wait any more."""
        pod, state = waiting.pod, self.chooser.state
        found = yield from self.chooser.choose(pod, among=waiting.nodes, prefer=pod.status.nominated_node_name)
        if not self._still_waits(pod):
            return None
        if isinstance(found, NoPreemption):
            return found
        awaited = found.leaving | {each.pod.uid for each in found.victims}
        key, rank = state.fair_share.key(pod), state.fair_share.pod_rank(pod)
        hold = Hold(pod.uid, key, rank, found.node, found.charges, awaited, cause="preemption", deadline=self._deadline)
        state.holds.add(hold, pod)
        if found.is_reclaim:
            self.chooser.eligibility.reclaims.note(pod, found.charges)
        return self._begin(Nominee(pod, (pod,), (hold,)), {pod.uid: found.victims})

    def _choose_for_gang(self, pod: Pod, gang: Gang) -> Steps[_Choice | NoPreemption | None]:
        """Choose for all pods of a gang that need places; what was chosen is held."""
        if self.gang_chooser is None:
            return None
        found = yield from self.gang_chooser.choose(gang, deadline=self._deadline)
        if not isinstance(found, GangPreemption):
            return found
        held = [(each, hold) for each in gang.waiting.values() if (hold := self._hold_of(each)) is not None]
        nominee = Nominee(pod, tuple(each for each, _ in held), tuple(hold for _, hold in held))
        return self._begin(nominee, {each.uid: choice.victims for each, choice in found.choices})

    def _begin(self, nominee: Nominee, victims: Mapping[str, tuple[EligiblePod, ...]]) -> _Choice:
        """Note a nominee, for whose pods, given by UID, these victims are evicted."""
        queue = self.chooser.state.queue
        self._nominees.add(nominee)
        if any(victims.values()):
            for pod in nominee.pods:
                # If it were placed while an Eviction is sent, that would cost a pod for nothing.
                queue.gate(pod.uid)
        queue.wake([pod.uid for pod in nominee.pods])  # from now on it is tried on its own
        pairs = zip(nominee.pods, nominee.holds, strict=True)
        return nominee, [Nomination(pod, hold.node, victims.get(pod.uid, ())) for pod, hold in pairs]

    async def _evict(self, nominee: Nominee, nominations: Sequence[Nomination]) -> None:
        reclaims = self.chooser.eligibility.reclaims
        outcome, evicted = await self._evictor.evict(
            nominations,
            is_needed=lambda: self._nominees.are_needed(nominee),
            is_ending=lambda victim: self.chooser.eligibility.level(victim.pod.uid) == LEAVING,
        )
        self._metrics.preemptions.labels(outcome.value).inc()
        self._metrics.victims.inc(len(evicted))
        for each in nominations if not evicted else ():
            if any(victim.reclaimed_for is not None for victim in each.victims):
                reclaims.forget(each.pod)
        if outcome is not EvictionOutcome.EVICTED:
            await self._give_up(nominee)

    def _evicted(self, nominee: Nominee) -> None:
        """Note that nothing more is sent for a pod, or for those of a gang."""
        self._under_way.pop(nominee.unit, None)
        for pod in nominee.pods:
            self.chooser.state.queue.ungate(pod.uid)

    async def _end_nominations(self) -> None:
        """Forget the nominees that have nodes, and give up those that have lost a hold, or whose deadline is over.

        While a gang is being scheduled some of its holds are missing for moments, so it waits for its turn.
        """
        now = self._clock()
        async with self.chooser.state.turn:
            ended = [each for each in self._nominees if self._nominees.has_ended(each)]
            late = [each for each in self._nominees if each not in ended and each.is_late(now)]
            for nominee in ended:
                self._nominees.remove(nominee)
                if not self._nominees.have_nodes(nominee):
                    self._attempts.failed(nominee.first)  # a pod of higher rank took cards, or a pod is gone
                for pod in nominee.pods:
                    if (hold := self._hold_of(pod)) is not None and hold in nominee.holds:
                        self.chooser.state.release_hold(pod.uid)
        for nominee in late:
            await self._give_up(nominee)

    async def _give_up(self, nominee: Nominee) -> None:
        """End a nomination without success, unless it has ended.

        While others choose, some of its holds are missing for moments. They would come back without a nominee, and
        would never end.
        """
        async with self.chooser.state.turn:
            if nominee not in tuple(self._nominees):
                return
            self._nominees.remove(nominee)
            self._attempts.failed(nominee.first)
            for pod, hold in zip(nominee.pods, nominee.holds, strict=True):
                if self._hold_of(pod) is hold:
                    self.chooser.state.release_hold(pod.uid)
        for pod, hold in zip(nominee.pods, nominee.holds, strict=True):
            await self._evictor.clear_nomination(pod, hold.node)

    async def _clear(self, pods: Sequence[Pod]) -> None:
        """Remove the nominations of pods for which no others are preempted."""
        for pod in pods:
            if pod.status.nominated_node_name and not self.chooser.state.is_external(pod):
                await self._evictor.clear_nomination(pod, pod.status.nominated_node_name)

    def _hold_of(self, pod: Pod) -> Hold | None:
        return self.chooser.state.holds.of(pod.uid)

    @property
    def _deadline(self) -> float:
        return self._clock() + self._settings.nomination_seconds
