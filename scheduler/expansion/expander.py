"""Asks autoscalers for nodes: collects pods that fit nowhere, and creates a placeholder for each node that is planned.

A placeholder is a pod of the system namespace that only a new node of its group could run. Any autoscaler answers it as
it answers every pod that is unschedulable. A new leader finds the placeholders again by their label.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from allocation.names import PLACEHOLDER
from cluster.api import STRATEGIC_MERGE_PATCH
from cluster.errors import ClusterError, NotFoundError
from cluster.events import EventType, Recorder
from cluster.metadata import ObjectMeta, timestamp
from cluster.resource import PODS
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion import placeholder
from scheduler.expansion.placeholders import Placeholders
from scheduler.expansion.planner import Decision, Planner
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import ExpansionOutcome
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.preemption.waiting_pod import WaitingPod, WaitingPods
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_LOOKS: Final = 2
"""How often waiting pods are looked for while they are collected."""
_MOST_OF_A_QUEUE: Final = 256
_DEADLINE_SECONDS: Final = 30.0
_PREFIX: Final = "tranche-node-"


class Expander:
    """The expander of one term.

    Attributes:
        planner: its plan.
        placeholders: its requests.
    """

    def __init__(
        self,
        fenced: FencedApi,
        state: ClusterState,
        *,
        waiting: WaitingPods,
        still_waits: Callable[[Pod], bool],
        recorder: Recorder,
        metrics: Metrics,
        settings: ExpanderSettings,
        unix: Callable[[], float],
    ) -> None:
        """Ask for nodes for pods that are `waiting`; the clock `unix` is that of the API server's timestamps.

        A pod that is being decided is not `waiting` at the moment; `still_waits` says whether it has a node by now.
        """
        self._fenced = fenced
        self._state = state
        self._waiting = waiting
        self._still_waits = still_waits
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._unix = unix
        self._serial = 0
        self.planner = Planner(state, settings, next_name=self._next_name)
        self.placeholders = Placeholders(fenced, state, self.planner, metrics=metrics, settings=settings, unix=unix)
        self._seen: dict[str, tuple[float, float]] = {}
        """When pods were first and last seen to fit nowhere, by UID."""
        self._decided: dict[str, Decision] = {}

    def note(self, uid: str) -> str:
        """Return what is decided about a pod, in words; empty if nothing is, or if it concerns no nodes."""
        decided = self._decided.get(uid)
        return f"autoscaling ({decided.verdict}): {decided.note}" if decided is not None else ""

    # ---- rounds ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        async with asyncio.TaskGroup() as group:
            deleting = group.create_task(self.placeholders.run())
            await self._look_repeatedly()
            deleting.cancel()

    async def _look_repeatedly(self) -> None:
        while self._fenced.is_trusted:
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    await self.look()
            except TimeoutError:
                log.warning("requests for nodes: not finished within %g s, trying again", _DEADLINE_SECONDS)
            except Exception:
                log.exception("internal error while nodes were asked for")
            await asyncio.sleep(self._settings.collect_seconds / _LOOKS)

    async def look(self) -> None:
        """Find out which requests have done their work, and decide about the pods that fit nowhere."""
        now = self._unix()
        await Pacer().run(self.placeholders.note_answers())
        groups = await self._waiting_groups(now)
        self.planner.begin(self._still_waits)
        self._recover()
        self.placeholders.end_others(now)
        self.planner.others = sum(name not in self.planner.in_flight.templates for name in self.placeholders.names)
        decisions: list[Decision] = []
        for pods in groups:
            async with self._state.turn:  # while a gang is being scheduled some cards are taken for moments
                decisions += await Pacer().run(self.planner.decide(pods, now))
        for each in decisions:
            self._report(each)
        self._decided = {uid: each for uid, each in self._decided.items() if self._still_waits(each.pod)}
        await self._fenced.write_each(self._create, [each for each in decisions if each.node])
        await self._fenced.write_each(self._mark, self.placeholders.unmarked)

    async def _waiting_groups(self, now: float) -> list[Sequence[Pod]]:
        """Return the pods that have fitted nowhere for long enough, each alone or with its gang."""
        seconds = self._settings.collect_seconds
        self._seen = {uid: each for uid, each in self._seen.items() if now - each[1] <= seconds}

        def is_due(waiting: WaitingPod) -> bool:
            first, _ = self._seen.get(waiting.pod.uid, (now, now))
            self._seen[waiting.pod.uid] = first, now
            return now - first >= seconds

        found = await Pacer().run(self._waiting(lambda _: True, is_due, _MOST_OF_A_QUEUE))
        groups: dict[object, Sequence[Pod]] = {}
        for each in found:
            gang = self._state.gangs.of(each.pod.uid) if self._state.gangs.waits_for_others(each.pod) else None
            if gang is None:
                groups[each.pod.uid] = (each.pod,)
            else:
                groups[gang.key] = tuple(gang.waiting.values())
        return [pods for pods in groups.values() if pods]

    def _recover(self) -> None:
        """Plan with the placeholders of an earlier leader, as far as their groups are still known."""
        for name, pod in self.placeholders.unended:
            group = self.planner.templates.get(pod.metadata.labels[PLACEHOLDER])
            if group is not None and name not in self.planner.in_flight.templates:
                self.planner.in_flight.add(name, group)

    # ---- what is written -------------------------------------------------------------------------------------------

    def _next_name(self) -> str:
        """Return the name of the next placeholder, which no earlier term has used."""
        self._serial += 1
        return f"{_PREFIX}{self._fenced.token.partition('/')[0]}-{self._serial}"

    async def _create(self, decision: Decision) -> None:
        name, pod = decision.node, decision.pod
        group = self.planner.in_flight.templates.get(name)
        if group is None:
            return
        self.placeholders.note_creation(name)
        resource = self._settings.resource
        if placeholder.fits_full_nodes(self._state.node_cache, group, resource):
            resource = ""
        amounts = placeholder.amounts_of(self._state.node_cache, group, pod, fills=not resource)
        body = placeholder.manifest(name, group, pod, amounts=amounts, resource=resource)
        try:
            await self._fenced.create(PODS.path(namespace=body["metadata"]["namespace"]), body)
        except ClusterError as error:
            log.warning("%s was not created: %s", name, error)
            self._metrics.expansions.labels(ExpansionOutcome.REFUSED.value).inc()
            self.planner.refused(name, str(error), self._unix())
        else:
            log.info("asked for a node like those of %s by pod %s, for pod %s", group.name, name, pod)

    async def _mark(self, meta: ObjectMeta) -> None:
        """Write the condition for which autoscalers look; the scheduler of the pod's name would, if there were one."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "only a new node of its group could run it",
            "lastTransitionTime": timestamp(self._unix()),
        }
        try:
            await self._fenced.patch_status(PODS, meta, {"conditions": [condition]}, content_type=STRATEGIC_MERGE_PATCH)
        except NotFoundError:
            return
        except ClusterError as error:
            log.warning("%s: its condition was not written, trying again: %s", meta.name, error)

    def _report(self, decision: Decision) -> None:
        """Record an event for a pod if it is decided otherwise than before."""
        pod, verdict, note = decision.pod, decision.verdict, decision.note
        before = self._decided.get(pod.uid)
        self._decided[pod.uid] = decision
        if verdict == "Skipped" or (before is not None and before.verdict == verdict):
            return
        kind: EventType = "Normal" if verdict in ("PreScheduled", "Schedulable") else "Warning"
        log.info("pod %s: %s: %s", pod, verdict, note, extra={"pod": str(pod), "uid": pod.uid})
        self._recorder.record(pod.reference, type=kind, reason=verdict, action="Expanding", note=note)
