"""Ends what lasts too long: gangs whose timeout passes while they wait, or while only some of their pods have nodes.

The time counts from when this term first saw the gang wait. A gang without a timeout waits for ever, and pods of it
that run stay. Gangs whose size has become smaller are decided again. Gangs whose pods differ in what they declare are
reported.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import chain
from typing import Final

from allocation.reasons import PodReason
from cluster.events import Recorder
from scheduler.gangs.gang import Gang, GangKey
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import GangOutcome
from scheduler.pacing import Pacer
from scheduler.preemption.evictor import Evictor
from scheduler.settings import GangSettings
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 1.0
_MOST_EVENTS: Final = 64
"""The pods of a gang on which one event is recorded each; a large gang has more than anyone reads."""


class GangKeeper:
    """The timeouts of all gangs."""

    def __init__(
        self,
        state: ClusterState,
        evictor: Evictor,
        *,
        recorder: Recorder,
        metrics: Metrics,
        settings: GangSettings,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Look at the gangs of `state` as long as this replica leads; evict by `evictor`."""
        self._state = state
        self._evictor = evictor
        self._recorder = recorder
        self._metrics = metrics
        self._backoff = settings.backoff_seconds
        self._is_trusted = is_trusted
        self._since: dict[GangKey, float] = {}
        """When each gang began to wait, on the clock of the queue."""
        self._reported: dict[GangKey, str] = {}
        """In what the pods of gangs differ, as it was last reported."""

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._is_trusted():
            await self.look()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def look(self) -> None:
        """End the time of the gangs whose timeout has passed, and report those whose pods differ."""
        now, pacer = self._state.queue.clock(), Pacer()
        since, reported = dict[GangKey, float](), dict[GangKey, str]()
        for gang in self._state.gangs:
            await pacer.rest()
            if difference := gang.disagreement:
                self._report(gang, difference)
                reported[gang.key] = difference
            if gang.is_committing or not _is_unsatisfied(gang) or not (gang.waiting or gang.placed):
                continue
            begin = since[gang.key] = self._since.get(gang.key, now)
            if gang.timeout and now - begin >= gang.timeout:
                since[gang.key] = now
                await self._end(gang, waited=now - begin)
            elif gang.is_complete:
                self._remind(gang)
        self._since, self._reported = since, reported

    def _report(self, gang: Gang, difference: str) -> None:
        """Record on one pod of a gang in what its pods differ, once as long as it stays the same."""
        running = (pod for uid in gang.nodes if (pod := self._state.running.get(uid)) is not None)
        pod = next(chain(gang.waiting.values(), running), None)
        if pod is not None and self._reported.get(gang.key) != difference:
            note = f"gang {gang.key}: {difference}; declare the same in all its pods"
            self._recorder.record(
                pod.reference, type="Warning", reason="GangDisagreement", action="Scheduling", note=note
            )

    def _remind(self, gang: Gang) -> None:
        """Wake a gang that has become complete although none of its pods came: its size is smaller now."""
        first = next(iter(gang.waiting), None)
        entry = self._state.queue.get(first) if first is not None else None
        if entry is not None and entry.place == "unschedulable" and entry.reasons == {PodReason.GangIncomplete.value}:
            self._state.queue.wake((entry.pod.uid,))

    async def _end(self, gang: Gang, *, waited: float) -> None:
        """Let a gang pause, say so, and evict those of its pods that run without the others."""
        state = self._state
        pods = (state.running.get(uid) for uid in tuple(gang.nodes))
        running = [pod for pod in pods if pod is not None and not pod.metadata.deletion_timestamp]
        gang.pause_until = state.queue.clock() + self._backoff
        note = (
            f"gang {gang.key} has waited {waited:.0f} s, its timeout is {gang.timeout:.0f} s: {gang.placed} of"
            f" {gang.size} pods have nodes; pausing for {self._backoff:.0f} s"
        )
        log.info("%s", note)
        self._metrics.gang_outcomes.labels(GangOutcome.TIMED_OUT.value).inc()
        for uid in tuple(gang.waiting):
            state.claims.set_failed(uid, "GangTimeout", note)
        for pod in (*tuple(gang.waiting.values()), *running)[:_MOST_EVENTS]:
            self._recorder.record(
                pod.reference, type="Warning", reason="GangSchedulingTimeout", action="Scheduling", note=note
            )
        if running:
            await self._evictor.end(running, reason="GangIncomplete", note=note)


def _is_unsatisfied(gang: Gang) -> bool:
    """Whether a gang waits or is incomplete; in the middle of a decision, its pods are only assumed to have nodes."""
    return not gang.is_satisfied or gang.state_before is not None
