"""Preempts pods of lower priority for pods that fit nowhere, in both modes.

For each pod the controller chooses and holds in one step; then the victims are evicted while others are scheduled.
What becomes free is held for the pod until it is bound, deleted or changed, or until a deadline.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from allocation.steps import Steps
from scheduler.holds import Hold
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import EvictionOutcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.preemption.attempts import Attempts
from scheduler.preemption.choice import Chooser, NoPreemption
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.node_search import Preemption
from scheduler.preemption.releasable import LEAVING
from scheduler.preemption.waiting_pod import WaitingPod, WaitingPods
from scheduler.settings import PreemptionSettings

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 0.5


class Preemptor:
    """The preemptions of one term.

    Attributes:
        chooser: chooses the pods to preempt.
    """

    def __init__(
        self,
        chooser: Chooser,
        evictor: Evictor,
        *,
        waiting: WaitingPods,
        still_waits: Callable[[Pod], bool],
        metrics: Metrics,
        settings: PreemptionSettings,
        clock: Callable[[], float],
        is_trusted: Callable[[], bool],
    ) -> None:
        """Preempt for the pods that are `waiting`, as long as they still do and this replica leads."""
        self.chooser = chooser
        self._evictor = evictor
        self._waiting = waiting
        self._still_waits = still_waits
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._is_trusted = is_trusted
        self._attempts = Attempts(clock)
        self._nominees: dict[str, Pod] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

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
        for pod in sorted(nominated, key=lambda pod: -pod.spec.priority) if self._settings.enabled else ():
            is_ours = self.chooser.state.is_ours(pod) and not pod.finished and not pod.metadata.deletion_timestamp
            if is_ours and self._may_join(pod):
                await self._preempt(WaitingPod(pod, pod.uid))

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
            if self._may(each) and self._may_join(each.pod):
                has_tried = True
                await self._preempt(each)
        return has_tried

    def _may(self, waiting: WaitingPod) -> bool:
        """Whether preemption may be tried now for a pod that waits."""
        hold = self.chooser.state.holds.of(waiting.pod.uid)
        is_nominee = hold is not None and hold.is_nomination
        return not is_nominee and self._attempts.may(waiting.pod, waiting.kind)

    def _may_join(self, pod: Pod) -> bool:
        """Whether a pod may become a nominee: its queue has fewer than the limit, or one that is less important.

        Victims may take as long as they like to end, so nominees of one queue must not keep others from preempting.
        """
        same = self._nominees_of_queue(pod)
        return len(same) < self._settings.concurrent or same[0].spec.priority < pod.spec.priority

    async def _make_room(self, pod: Pod) -> None:
        """Give up the least important nominee of the queue of a pod that became one, if there are too many now."""
        same = self._nominees_of_queue(pod)
        if len(same) > self._settings.concurrent:
            await self._give_up(same[0])

    def _nominees_of_queue(self, pod: Pod) -> list[Pod]:
        """Return the nominees of the queue of a pod, the least important first."""
        key = self.chooser.state.fair_share.key
        same = (each for each in self._nominees.values() if key(each) == key(pod))
        return sorted(same, key=lambda each: each.spec.priority)

    async def _preempt(self, waiting: WaitingPod) -> None:
        """Choose the pods to preempt for one, hold what that frees, and begin with the evictions."""
        pod = waiting.pod
        pacer, queue = Pacer(), self.chooser.state.queue
        async with self.chooser.state.turn:
            choice = await pacer.run(self._choose(waiting))
        if entry := queue.get(pod.uid):
            queue.charge(entry, pacer.spent, placed=False)
        if choice is None:
            return
        if isinstance(choice, NoPreemption):
            self._attempts.futile(waiting.kind)
            log.debug("pod %s: no preemption candidates: %s", pod, choice.why, extra={"pod": str(pod), "uid": pod.uid})
            if pod.status.nominated_node_name and self.chooser.state.has_queue:
                await self._evictor.clear_nomination(pod, pod.status.nominated_node_name)
            return
        self._attempts.found(waiting.kind)
        log.info(
            *("pod %s: %d pods on node %s are preempted, and %d end there already", pod),
            *(len(choice.victims), choice.node, len(choice.leaving)),
            extra={"pod": str(pod), "uid": pod.uid, "node": choice.node},
        )
        if choice.victims:
            task = self._under_way[pod.uid] = asyncio.create_task(self._evict(pod, choice))
            task.add_done_callback(lambda _: self._evicted(pod))
        await self._make_room(pod)

    def _choose(self, waiting: WaitingPod) -> Steps[Preemption | NoPreemption | None]:
        """Choose, and hold what was chosen in the same step; return None if the pod does not wait any more."""
        pod = waiting.pod
        found = yield from self.chooser.choose(pod, among=waiting.nodes, prefer=pod.status.nominated_node_name)
        if not self._still_waits(pod):
            return None
        if isinstance(found, Preemption):
            self._hold(pod, found)
        return found

    def _hold(self, pod: Pod, choice: Preemption) -> None:
        state = self.chooser.state
        awaited = choice.leaving | {each.pod.uid for each in choice.victims}
        key, rank = state.fair_share.key(pod), state.fair_share.pod_rank(pod)
        deadline = self._clock() + self._settings.nomination_seconds
        hold = Hold(pod.uid, key, rank, choice.node, choice.charges, awaited, cause="preemption", deadline=deadline)
        state.holds.add(hold, pod)
        self._nominees[pod.uid] = pod
        if choice.victims:
            # If it were placed while an Eviction is sent, that would cost a pod for nothing.
            state.queue.gate(pod.uid)
        if choice.is_reclaim:
            self.chooser.eligibility.reclaims.note(pod, choice.charges)
        state.queue.wake((pod.uid,))  # from now on it is tried on its own

    async def _evict(self, pod: Pod, choice: Preemption) -> None:
        holds = self.chooser.state.holds
        hold = holds.of(pod.uid)
        outcome, evicted = await self._evictor.evict(
            pod,
            choice.node,
            choice.victims,
            is_needed=lambda: hold is not None and holds.of(pod.uid) is hold,
            is_ending=lambda victim: self.chooser.eligibility.level(victim.pod.uid) == LEAVING,
        )
        self._metrics.preemptions.labels(outcome.value).inc()
        self._metrics.victims.inc(len(evicted))
        if choice.is_reclaim and not evicted:
            self.chooser.eligibility.reclaims.forget(pod)
        if outcome is not EvictionOutcome.EVICTED and holds.of(pod.uid) is hold:
            await self._give_up(pod)

    def _evicted(self, pod: Pod) -> None:
        """Note that nothing more is sent for a pod."""
        self._under_way.pop(pod.uid, None)
        self.chooser.state.queue.ungate(pod.uid)

    async def _end_nominations(self) -> None:
        """Forget the nominees that have no hold or do not wait any more, and give up those whose deadline is over."""
        holds, now = self.chooser.state.holds, self._clock()
        for uid, pod in tuple(self._nominees.items()):
            hold = holds.of(uid)
            if hold is None:
                del self._nominees[uid]
                if not self.chooser.state.node_cache.node_of(uid):
                    self._attempts.failed(pod)  # a pod of higher rank took the cards, or the pod is gone
            elif not self._still_waits(pod):
                del self._nominees[uid]
                self.chooser.state.release_hold(uid)
            elif hold.deadline is not None and now >= hold.deadline:
                await self._give_up(pod)

    async def _give_up(self, pod: Pod) -> None:
        """End a nomination without success."""
        state = self.chooser.state
        hold = state.holds.of(pod.uid)
        self._nominees.pop(pod.uid, None)
        self._attempts.failed(pod)
        if hold is not None:
            state.release_hold(pod.uid)
            await self._evictor.clear_nomination(pod, hold.node)
