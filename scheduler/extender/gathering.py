"""Gangs of which kube-scheduler brings one pod after the other: they gather at `/bind`, and are bound together.

One gang gathers at a time, so that no two of them have cards that both need. A pod that comes to its node has its cards
reserved, and waits for the others; once as many have come as the gang needs, all are bound as in loop mode. If they do
not come in time, all is released, and the gang backs off. `/filter` rejects the pods of other gangs meanwhile, and
those of gangs that have too few pods or fit nowhere as a whole.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from scheduler.binding.binder import Result
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.cycle.result import Scheduled
from scheduler.extender.errors import RefusedError
from scheduler.extender.gang_rehearsals import NO_PLAN, GangRehearsals, Plan
from scheduler.extender.gang_turns import Arrival, GangTurns, Turn
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.gang_scheduling.gang_binding import PATIENCE_SECONDS, GangBinding, Member
from scheduler.gangs.gang import Gang, GangKey
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import GangOutcome, Outcome
from scheduler.objects import Pod
from scheduler.settings import GangSettings
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 0.5
_BUDGET_SECONDS: Final = 0.05
"""How long gangs that want to gather are rehearsed in each period."""
_OFFER_SECONDS: Final = 12.0
"""For how long others wait for the first pod of a gang whose turn it is; kube-scheduler may pause a pod for 10 s."""


class Gathering:
    """The gang that gathers, and those that want to.

    Attributes:
        rehearsals: the gangs that fit nowhere.
    """

    def __init__(
        self,
        state: ClusterState,
        binding_cycle: BindingCycle,
        binding: GangBinding,
        *,
        rehearsals: GangRehearsals,
        rejected: RejectedPods,
        metrics: Metrics,
        settings: GangSettings,
    ) -> None:
        """Bind gangs by `binding`; those of the `rejected` pods that may come now are evaluated again."""
        self.rehearsals = rehearsals
        self._state = state
        self._binding_cycle = binding_cycle
        self._binding = binding
        self._rejected = rejected
        self._metrics = metrics
        self._settings = settings
        self._clock = state.queue.clock
        self._turns = GangTurns()
        self._blocked: set[GangKey] = set()
        """The gangs that nothing but time or their own pods keeps from gathering."""
        self._commits: set[asyncio.Task[None]] = set()

    # ---- /filter ---------------------------------------------------------------------------------------------------

    async def admit(self, pod: Pod, *, starts: bool) -> str:
        """Return why no node may take a pod because of its gang, or an empty string.

        If the pod may come, and `starts`, its gang gathers from now on.
        """
        plan: Plan | None = None
        while True:
            async with self.rehearsals.alone:
                gang = self._of(pod)
                why = self._objection(gang) if gang is not None else ""
                if why or gang is None or not starts:
                    return why
                if self._turns.current is not None or plan is not None:
                    self._begin(gang, plan or NO_PLAN)
                    return ""
            plan = await self.rehearsals.plan(gang)

    def planned(self, pod: Pod) -> str:
        """Return the node on which a pod fits together with its gang, which gathers; empty if none is known."""
        turn = self._turns.current
        return turn.plan.get(pod.uid, "") if turn is not None else ""

    def why(self, pod: Pod) -> str:
        """Return why a pod waits because of its gang, or an empty string."""
        gang, turn = self._of(pod), self._turns.current
        if gang is None:
            return ""
        if turn is not None and turn.key == gang.key and turn.has_begun:
            seconds, came = max(0.0, turn.deadline - self._clock()), f"{gang.placed} of {gang.size} pods have come"
            return f"gang {gang.key} gathers: {came} to their nodes, the others have {seconds:.0f} s left"
        return self._refusal(gang) or self.rehearsals.why(gang) or self._waits_for(gang)

    def may_preempt(self, pod: Pod) -> bool:
        """Whether all other pods run that the gang of a pod needs, so that evictions for the pod are enough."""
        gang, turn = self._of(pod), self._turns.current
        if gang is None:
            return True
        waits_for_it = turn is not None and turn.key == gang.key and bool(turn.arrivals)
        return gang.size - gang.placed == 1 and not waits_for_it

    def _of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod that gets a node only together with others of it."""
        gangs = self._state.gangs
        return gangs.of(pod.uid) if gangs.waits_for_others(pod) else None

    def _objection(self, gang: Gang) -> str:
        """Return why a pod must not come now, and remember what its gang waits for."""
        turn = self._turns.current
        if turn is not None and turn.key == gang.key and gang.is_complete:
            return ""
        why = self._refusal(gang)
        if why:
            self._blocked.add(gang.key)
            return why
        why = self.rehearsals.why(gang)
        if why:
            return why
        why = self._waits_for(gang)
        if why:
            self._turns.add(gang.key)
        return why

    def _refusal(self, gang: Gang) -> str:
        """Return why a gang must not gather now, whatever others do."""
        backs_off = self._clock() < gang.pause_until
        return gang.unready or (f"gang {gang.key} backs off" if backs_off else "")

    def _waits_for(self, gang: Gang) -> str:
        """Return which other gang comes first; a tenant sees only the names of its own."""
        first = self._turns.before(gang.key)
        if first is None:
            return ""
        name = f"gang {first}" if first.namespace == gang.key.namespace else "a gang of another namespace"
        return f"gang {gang.key} waits for {name}, whose turn it is to gather"

    def _begin(self, gang: Gang, plan: Plan) -> Turn:
        """Let a gang gather, whose turn it is or may be; return its turn."""
        turn = self._turns.current = self._turns.current or Turn(gang.key, plan, 0.0)
        if not turn.has_begun:
            turn.has_begun = True
            turn.deadline = self._clock() + self._settings.gather_seconds
            self._turns.drop(turn.key)
            log.info("gang %s gathers", turn.key)
            self._wake(gang)
        return turn

    # ---- /bind -----------------------------------------------------------------------------------------------------

    def enter(self, pod: Pod) -> Turn | None:
        """Return the turn of the gang of a pod that may be reserved now, or None if it needs no others.

        Raises:
            RefusedError: it is not the turn of its gang.
        """
        gang = self._of(pod)
        if gang is None:
            return None
        why = self._objection(gang)
        if why:
            raise RefusedError(f"pod {pod}: {why}")
        return self._begin(gang, NO_PLAN)

    def join(self, turn: Turn, pod: Pod, chosen: Scheduled) -> asyncio.Future[Result]:
        """Return what will become of a pod that entered, and for which cards have been reserved in the same step."""
        outcome = asyncio.get_running_loop().create_future()
        turn.arrivals[pod.uid] = Arrival(Member(pod, chosen), outcome)
        self._commit_if_enough(turn)
        return outcome

    def _commit_if_enough(self, turn: Turn) -> None:
        """Bind the pods that have come if the gang needs no more."""
        gang = self._state.gangs.get(turn.key)
        if gang is not None and gang.is_satisfied and turn.arrivals:
            gang.is_committing = True
            self._end(turn)
            task = asyncio.create_task(self._commit(gang, turn))
            self._commits.add(task)
            task.add_done_callback(self._committed)

    async def _commit(self, gang: Gang, turn: Turn) -> None:
        members = [each.member for each in turn.arrivals.values()]
        needed = gang.size - (gang.placed - len(members))
        results: Mapping[str, Result] = {}
        try:
            results = await self._binding.run(
                *(str(gang.key), members),
                needed=needed,
                patience=gang.timeout or PATIENCE_SECONDS,
                on_result=lambda uid, result: turn.arrivals[uid].resolve(result),
            )
            count = sum(each.outcome is Outcome.BOUND for each in results.values())
            self._count(GangOutcome.BOUND if count >= needed else GangOutcome.REFUSED)
        finally:
            gang.is_committing = False
            unknown = Result(Outcome.REFUSED, "the term ended while its Binding was in progress")
            if any(each.outcome is not Outcome.BOUND for each in results.values()):
                gang.pause_until = self._clock() + self._settings.backoff_seconds
            for arrival in turn.arrivals.values():
                arrival.resolve(unknown)

    def _committed(self, task: asyncio.Task[None]) -> None:
        self._commits.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a gang was not bound", exc_info=error)

    # ---- the end of a turn -----------------------------------------------------------------------------------------

    def _end(self, turn: Turn) -> None:
        """End a turn: others come first, and the next one is announced."""
        self._turns.current = None
        self._turns.serve(turn.key)

    def _give_up(self, turn: Turn, why: str) -> None:
        """Release what is reserved for the pods that have come, in one step, and tell them why."""
        gang = self._state.gangs.get(turn.key)
        if gang is not None:
            gang.pause_until = self._clock() + self._settings.backoff_seconds
        self._end(turn)
        self._count(GangOutcome.REFUSED)
        log.info("gang %s has not gathered: %s", turn.key, why)
        for arrival in turn.arrivals.values():
            self._release(arrival, Result(Outcome.REFUSED, why, reason="GangIncomplete"))

    def _release(self, arrival: Arrival, result: Result) -> None:
        self._binding_cycle.end(arrival.member.pod, arrival.member.chosen, result)
        arrival.resolve(result)

    def _count(self, outcome: GangOutcome) -> None:
        self._metrics.gang_outcomes.labels(outcome.value).inc()

    # ---- time and changes ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End turns in time, and announce the next ones, until cancelled; then nothing stays reserved."""
        async with self.rehearsals.alone:
            self._want_unfinished()
        try:
            while True:
                await self.look()
                await asyncio.sleep(_PERIOD_SECONDS)
        finally:
            if self._turns.current is not None:
                self._give_up(self._turns.current, "the term of this leader ended while its gang gathered")

    def abandon(self) -> None:
        """Cancel the Bindings of gangs."""
        for task in self._commits:
            task.cancel()

    async def look(self) -> None:
        """Look at what time and other changes have brought."""
        async with self.rehearsals.alone:
            if self._turns.current is not None:
                self._look_at_turn(self._turns.current)
            for key in tuple(self._blocked):
                gang = self._state.gangs.get(key)
                if gang is None or gang.is_satisfied or not self._refusal(gang):
                    self._blocked.discard(key)
                    self._wake(gang)
        for gang in await self.rehearsals.review():
            self._wake(gang)
        if self._turns.current is None:
            await self._announce()

    def _look_at_turn(self, turn: Turn) -> None:
        """Let go the pods that are gone, and end the turn if the others cannot come any more, or not in time."""
        for uid, arrival in tuple(turn.arrivals.items()):
            if not self._rejected.waits(arrival.member.pod):
                del turn.arrivals[uid]
                self._release(arrival, Result(Outcome.GONE, "it is bound, or being deleted"))
        self._commit_if_enough(turn)
        gang = self._state.gangs.get(turn.key)
        if self._turns.current is not turn:
            return
        if gang is None or not gang.is_complete:
            self._give_up(turn, f"gang {turn.key} has fewer pods than it needs: create the others")
        elif self._clock() >= turn.deadline and turn.has_begun:
            seconds = self._settings.gather_seconds
            why = f"gang {turn.key} has not gathered in {seconds:g} s: {gang.placed} of {gang.size} pods came to nodes"
            self._give_up(turn, f"{why}; it backs off for {self._settings.backoff_seconds:g} s")
        elif gang.is_satisfied or self._clock() >= turn.deadline:
            self._end(turn)

    async def _announce(self) -> None:
        """Announce the turn of the first gang that wants to gather, can, and fits."""
        seconds, key = 0.0, self._turns.first()
        while key is not None and self._turns.current is None and seconds < _BUDGET_SECONDS:
            gang = self._state.gangs.get(key)
            begin = self._clock()
            is_able = gang is not None and not gang.is_satisfied and not self._refusal(gang)
            plan = await self.rehearsals.plan(gang) if gang is not None and is_able else NO_PLAN
            seconds += self._clock() - begin
            if self._turns.current is not None:
                return  # one of its pods has come meanwhile
            self._turns.serve(key)
            if gang is not None and is_able and not self.rehearsals.why(gang):
                self._turns.current = Turn(key, plan, self._clock() + _OFFER_SECONDS)
                self._wake(gang)
            key = self._turns.first()

    def _want_unfinished(self) -> None:
        """Let the gangs come first of which an earlier leader has bound some pods only; kube-scheduler has the rest."""
        nodes = tuple(self._state.ledger.nodes)
        for gang in sorted(self._state.gangs, key=lambda gang: gang.key):
            if gang.is_partial and gang.is_complete and all(map(self._state.is_external, gang.waiting.values())):
                self._turns.add(gang.key)
                for pod in gang.waiting.values():
                    self._rejected.note(pod, nodes, since=-1)

    def _wake(self, gang: Gang | None) -> None:
        self._rejected.wake(tuple(gang.waiting) if gang is not None else ())
