"""Moves pods for one that fits nowhere, in the background or when an administrator asks for it; one plan at a time.

In the step in which a plan is confirmed, cards are held for the pod that waits, and for each pod that will come back.
Then the pods are evicted one after the other, each when the one before it has a node again.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.steps import Exclusive, Steps
from cluster.events import Recorder
from scheduler.consolidation.destinations import Move
from scheduler.consolidation.planner import NoPlan, Plan, Planner
from scheduler.holds import Hold
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import ConsolidationOutcome, EvictionOutcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.preemption.attempts import Attempts
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.waiting_pod import WaitingPod, WaitingPods
from scheduler.settings import ConsolidationSettings
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 0.5
_TRIED: Final = 4
"""The number of pods of each queue for which a plan is made in one look."""
_STEP: Final = 1024
_BUSY: Final = "pods are being moved for another pod; try again when it has its cards"
_OUTDATED: Final = "the cluster has changed while moves were planned; try again"


class _UnderWay:
    """A plan that is being carried out.

    Attributes:
        plan: the plan.
        hold: what is held for the pod that waits.
        done: the number of pods that have a node again.
        before: the UIDs of the pods of the controller before the eviction of the next pod; None until then.
        deadline: when the next pod has to have a node again, or, after the last, when the waiting pod has to.
        next_eviction: the earliest time of the next eviction.
    """

    def __init__(self, plan: Plan, hold: Hold) -> None:
        self.plan = plan
        self.hold = hold
        self.done = 0
        self.before: frozenset[str] | None = None
        self.deadline = 0.0
        self.next_eviction = 0.0


class Ended(msgspec.Struct, frozen=True):
    """How the last plan for a pod ended; `why` is empty if the pod has a node, or is gone."""

    uid: str
    outcome: ConsolidationOutcome
    why: str


class Progress(msgspec.Struct, frozen=True):
    """How many of the pods of a plan have been moved."""

    done: int
    total: int


class Consolidator:
    """The moves of one term.

    Attributes:
        planner: plans them.
        ended: how the last plan ended; None if none has yet.
    """

    def __init__(
        self,
        planner: Planner,
        evictor: Evictor,
        *,
        waiting: WaitingPods,
        recorder: Recorder,
        metrics: Metrics,
        settings: ConsolidationSettings,
        nomination_seconds: float,
        clock: Callable[[], float],
        is_trusted: Callable[[], bool],
    ) -> None:
        """Move pods for those that are `waiting`, as long as this replica leads.

        When all are moved, cards are held for the pod that waits for at most `nomination_seconds`.
        """
        self.planner = planner
        self._evictor = evictor
        self._waiting = waiting
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._nomination_seconds = nomination_seconds
        self._clock = clock
        self._is_trusted = is_trusted
        self._attempts = Attempts(clock)
        self._under_way: _UnderWay | None = None
        self.ended: Ended | None = None

    def progress(self, uid: str) -> Progress | None:
        """Return how far the plan for a pod is; None if none is being carried out."""
        current = self._under_way
        if current is None or current.plan.pod.uid != uid:
            return None
        return Progress(current.done, len(current.plan.moves))

    @property
    def _state(self) -> ClusterState:
        return self.planner.state

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._is_trusted():
            await self.look()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def look(self) -> None:
        """Go on with the plan under way; without one, begin one for the first waiting pod that has one, if enabled."""
        if self._under_way is not None:
            await self._go_on(self._under_way)
        elif self._settings.enabled:
            for waiting in await Pacer().run(self._waiting(lambda _: True, self._may, _TRIED)):
                if isinstance(await self.begin(waiting.pod), Plan):
                    self._attempts.found(waiting.kind)
                    return
                self._attempts.futile(waiting.kind)

    async def begin(self, pod: Pod, *, most_moves: int | None = None) -> Plan | NoPlan:
        """Plan for a pod and begin with the moves, unless they are more than `most_moves`; return the plan."""
        if self._under_way is not None:
            return NoPlan(_BUSY)
        async with self._state.turn:
            plan = await Pacer().run(self.planner.plan(pod))
        if isinstance(plan, NoPlan):
            return plan
        if self._under_way is not None:
            return NoPlan(_BUSY)
        with Exclusive("confirming and holding"):
            confirmed = self.planner.confirm(plan) if self._still_waits(pod) else None
            if confirmed is None:
                return NoPlan(_OUTDATED)
            if most_moves is not None and len(confirmed.moves) > most_moves:
                return NoPlan(f"{len(confirmed.moves)} pods would have to be moved now, more than {most_moves}")
            self._under_way = _UnderWay(confirmed, self._hold(confirmed))
        note = f"moving {_pods(len(confirmed.moves))} from node {confirmed.node} to other nodes, so that this pod fits"
        self._report(pod, reason="Consolidating", note=note)
        return confirmed

    def _may(self, waiting: WaitingPod) -> bool:
        """Whether pods may be moved now for one that waits."""
        entry = self._state.queue.get(waiting.pod.uid)
        if entry is None or self._clock() - entry.since < self._settings.after_seconds:
            return False
        return self._state.holds.of(waiting.pod.uid) is None and self._attempts.may(waiting.pod, waiting.kind)

    def _still_waits(self, pod: Pod) -> bool:
        return self._state.queue.get(pod.uid) is not None and not self._state.node_cache.node_of(pod.uid)

    # ---- what is held ----------------------------------------------------------------------------------------------

    def _hold(self, plan: Plan) -> Hold:
        """Hold what the pod that waits will get, and a place for each pod that is moved."""
        awaited = plan.leaving | {each.moved.pod.uid for each in plan.moves}
        hold = self._add_hold(plan.pod.uid, plan.pod, plan.node, plan.charges, awaited=awaited)
        for move in plan.moves:
            self._add_hold(_place(move), move.moved.replacement, move.node, move.charges)
        return hold

    def _add_hold(
        self,
        uid: str,
        pod: Pod,
        node: str,
        charges: tuple[Charge, ...],
        *,
        awaited: frozenset[str] = frozenset(),
    ) -> Hold:
        state = self._state
        key, rank = state.fair_share.key(pod), state.fair_share.pod_rank(pod)
        hold = Hold(uid, key, rank, node, charges, awaited, cause="consolidation")
        state.holds.add(hold, pod)
        state.queue.wake((uid,))  # from now on it is tried on its own
        return hold

    def _hand_over(self, move: Move, pod: Pod) -> None:
        """Hold the place of a pod that is moved for the one that its controller has created."""
        if self._state.holds.release(_place(move)):
            self._add_hold(pod.uid, pod, move.node, move.charges)

    # ---- the plan under way ----------------------------------------------------------------------------------------

    async def _go_on(self, current: _UnderWay) -> None:
        """Evict the next pod, or see whether the last one has a node again."""
        plan, now = current.plan, self._clock()
        if current.before is not None:
            # Whatever becomes of the pod that waits, one that was evicted gets its place.
            if await self._is_back(plan.moves[current.done], current.before):
                current.done, current.before = current.done + 1, None
                current.deadline = self._clock() + self._nomination_seconds
            elif now >= current.deadline:
                seconds = f"{self._settings.replacement_seconds:.0f} s"
                self._end(current, ConsolidationOutcome.NOT_BACK, f"a moved pod has no node again after {seconds}")
        elif self._state.holds.of(plan.pod.uid) is not current.hold:
            # It is bound, or gone, or a pod of higher rank took the cards.
            is_placed = self._state.node_cache.node_of(plan.pod.uid) != ""
            self._end(current, ConsolidationOutcome.PLACED if is_placed else ConsolidationOutcome.GONE)
        elif current.done == len(plan.moves):
            if now >= current.deadline:
                self._end(current, ConsolidationOutcome.LATE, "the moved pods have not ended in time")
        elif now >= current.next_eviction:
            await self._evict(current, plan.moves[current.done])

    async def _evict(self, current: _UnderWay, move: Move) -> None:
        plan, pod = current.plan, move.moved.pod
        before = frozenset(each.uid for each in await Pacer().run(self._siblings(pod)))
        outcome = await self._evictor.move(
            move.moved.eligible,
            note=f"Moved so that pod {plan.pod.uid} fits on node {plan.node}; there is room on node {move.node}",
            is_needed=lambda: self._state.holds.of(plan.pod.uid) is current.hold,
        )
        if outcome is not EvictionOutcome.EVICTED:
            self._end(current, ConsolidationOutcome.REFUSED, f"an eviction was not carried out ({outcome.value})")
            return
        self._metrics.moved_pods.inc()
        current.before, now = before, self._clock()
        # A StatefulSet creates the next pod when the last one has ended.
        current.deadline = now + pod.spec.termination_grace_period_seconds + self._settings.replacement_seconds
        current.next_eviction = now + 60 / self._settings.evictions_per_minute

    async def _is_back(self, move: Move, before: frozenset[str]) -> bool:
        """Whether another pod of the controller has a node; one that waits has the place of the pod that was moved."""
        new = [each for each in await Pacer().run(self._siblings(move.moved.pod)) if each.uid not in before]
        if any(self._state.node_cache.node_of(each.uid) for each in new):
            self._state.release_hold(_place(move))
            return True
        for each in new[:1]:
            self._hand_over(move, each)
        return False

    def _siblings(self, pod: Pod) -> Steps[list[Pod]]:
        """Return all pods with the controller of a pod."""
        state, controller = self._state, pod.metadata.controller
        found = []
        known = itertools.chain((each.pod for each in state.queue), tuple(state.running.values()))
        for position, each in enumerate(known):
            if position % _STEP == _STEP - 1:
                yield
            if each.metadata.controller == controller:
                found.append(each)
        return found

    def _end(self, current: _UnderWay, outcome: ConsolidationOutcome, why: str = "") -> None:
        """Hold nothing for the plan any more; the pods that were moved keep their new nodes."""
        plan, self._under_way = current.plan, None
        self.ended = Ended(plan.pod.uid, outcome, why)
        self._metrics.consolidations.labels(outcome.value).inc()
        for hold in self._state.holds:
            if hold.cause == "consolidation":  # there is one plan at a time
                self._state.release_hold(hold.uid)
        if why:
            self._attempts.failed(plan.pod)
            note = f"no more pods are moved for it after {current.done} of {len(plan.moves)}: {why}"
            self._report(plan.pod, reason="ConsolidationEnded", note=note)

    def _report(self, pod: Pod, *, reason: str, note: str) -> None:
        log.info("pod %s: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid})
        self._recorder.record(pod.reference, type="Normal", reason=reason, action="Consolidating", note=note)


def _place(move: Move) -> str:
    """Return the UID by which the place of a pod that is moved is held, until its replacement exists."""
    return f"place:{move.moved.pod.uid}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
