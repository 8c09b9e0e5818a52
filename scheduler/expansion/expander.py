"""Asks autoscalers for nodes: creates a placeholder for each that is planned, and deletes it when the node has come.

A placeholder is a pod of the system namespace that only a new node of its group could run. Any autoscaler answers it as
it answers every pod that is unschedulable. A new leader finds the placeholders again by their label.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from allocation.names import PLACEHOLDER
from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import Steps
from cluster.api import STRATEGIC_MERGE_PATCH
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.events import EventType, Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta, timestamp, unix_seconds
from cluster.resource import PODS
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion import placeholder
from scheduler.expansion.planner import Decision, Planner
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import ExpansionOutcome
from scheduler.objects import Node, Pod
from scheduler.pacing import Pacer
from scheduler.preemption.waiting_pod import WaitingPod, WaitingPods
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_LOOKS: Final = 2
"""How often waiting pods are looked for while they are collected."""
_IDLE_SECONDS: Final = 60.0
"""After this time without a pod that waits for it, a node is not asked for any more."""
_MOST_OF_A_QUEUE: Final = 256
_DEADLINE_SECONDS: Final = 30.0
_PREFIX: Final = "tranche-node-"


class _Creation(msgspec.Struct, frozen=True):
    """When a placeholder was created, and the nodes that existed then."""

    at: float
    nodes: frozenset[str]


class Expander:
    """The expander of one term.

    Attributes:
        planner: its plan.
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
        self._shown: dict[str, Pod] = {}
        """The placeholders that exist, by name."""
        self._creations: dict[str, _Creation] = {}
        """The placeholders that this term has created."""
        self._idle_since: dict[str, float] = {}
        self._ended: set[str] = set()
        """The placeholders that are to be deleted."""
        self._answers: set[str] = set()
        """The nodes that have come in answer to a placeholder."""
        self._seen: dict[str, tuple[float, float]] = {}
        """When pods were first and last seen to fit nowhere, by UID."""
        self._decided: dict[str, Decision] = {}
        self._answered: dict[str, str] = {}
        """The nodes that are closed until the placeholder that they answer has ended, by its name."""
        self._has_answers = asyncio.Event()

    # ---- placeholders as the API server shows them -----------------------------------------------------------------

    def set_pod(self, pod: Pod, _old: Pod | None = None) -> None:
        """Set the state of a pod; only placeholders count."""
        if not placeholder.is_placeholder(pod):
            return
        if pod.finished or pod.spec.node_name or pod.metadata.deletion_timestamp:
            self.drop_pod(pod)
        else:
            self._shown[pod.metadata.name] = pod

    def drop_pod(self, pod: Pod) -> None:
        """Forget a placeholder that is gone; whoever waited for its node is decided again."""
        name = pod.metadata.name
        if placeholder.is_placeholder(pod) and self._shown.pop(name, None) is not None:
            self._open(name)
            self._ended.discard(name)
            self._idle_since.pop(name, None)
            self._creations.pop(name, None)
            self.planner.in_flight.drop(name)

    def set_node(self, node: Node | GpuNodeStatus, _old: Node | GpuNodeStatus | None = None) -> None:
        """Note that a node or its report, which has the node's name, may be what was asked for."""
        if self._shown:
            self._note_answer(node.metadata.name)

    def note(self, uid: str) -> str:
        """Return what is decided about a pod, in words; empty if nothing is, or if it concerns no nodes."""
        decided = self._decided.get(uid)
        return f"autoscaling ({decided.verdict}): {decided.note}" if decided is not None else ""

    # ---- rounds ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        while self._fenced.is_trusted:
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    await self.look()
            except TimeoutError:
                log.warning("requests for nodes: not finished within %g s, trying again", _DEADLINE_SECONDS)
            except Exception:
                log.exception("internal error while nodes were asked for")
            await self._rest()

    async def _rest(self) -> None:
        """Wait for the next look; delete placeholders as their nodes come meanwhile."""
        until = asyncio.get_running_loop().time() + self._settings.collect_seconds / _LOOKS
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout_at(until):
                    await self._has_answers.wait()
                await self._delete_ended()

    async def look(self) -> None:
        """End the placeholders that have done their work, and decide about the pods that fit nowhere."""
        now = self._unix()
        self._answers.intersection_update(self._state.node_cache.names)
        await Pacer().run(self._note_answers())
        await self._delete_ended()
        groups = await self._waiting_groups(now)
        self.planner.begin(self._still_waits)
        self._recover()
        self._end_others(now)
        self.planner.others = sum(name not in self.planner.in_flight.templates for name in self._shown)
        decisions: list[Decision] = []
        for pods in groups:
            async with self._state.turn:  # while a gang is being scheduled some cards are taken for moments
                decisions += await Pacer().run(self.planner.decide(pods, now))
        for each in decisions:
            self._report(each)
        self._decided = {uid: each for uid, each in self._decided.items() if self._still_waits(each.pod)}
        await self._delete_ended()
        await self._fenced.write_each(self._create, [each for each in decisions if each.node])
        await self._fenced.write_each(self._mark, self._unmarked())

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
        for name, pod in self._shown.items():
            group = self.planner.templates.get(pod.metadata.labels[PLACEHOLDER])
            if group is not None and name not in self._ended and name not in self.planner.in_flight.templates:
                self.planner.in_flight.add(name, group)

    def _note_answers(self) -> Steps[None]:
        """Note the nodes that came before their placeholders were shown, as to a new leader."""
        for node in tuple(self._state.node_cache.names) if self._unended() else ():
            yield
            self._note_answer(node)

    def _note_answer(self, node: str) -> None:
        """Close a node that has come in answer to a request and has reported its cards, until that request has ended.

        Pods take their places there the moment that it is open. An autoscaler that then still sees the placeholder sees
        a pod that does not fit there any more, and brings another node for it. The API server shows it the end of the
        placeholder before the first Binding to the node.
        """
        came = self._state.node_cache.nodes.get(node)
        if came is None or node in self._answers or self._state.ledger.inventory(node) is None:
            return
        for name, pod in self._unended():
            creation = self._creations.get(name)
            if (creation is None or node not in creation.nodes) and placeholder.is_answered_by(pod, came):
                log.info("node %s has come in answer to %s", node, name)
                self._answers.add(node)
                self._answered[name] = node
                message = f"node {node} came in answer to pod {name}, which is about to be deleted"
                rejection = NodeRejection(NodeReason.NodeRequestOpen, message, resolvable=False)
                self._state.requested_nodes.set(node, rejection)
                self._end(name, ExpansionOutcome.ANSWERED)
                self._has_answers.set()
                return

    def _open(self, name: str) -> None:
        """Open the node that came in answer to a placeholder, which has ended."""
        node = self._answered.pop(name, None)
        if node is not None:
            self.planner.arrived(name, node, self._unix())
            self._state.requested_nodes.set(node, None)

    def _end_others(self, now: float) -> None:
        """End placeholders whose node has not come in time, and those that no pod waits for."""
        for name, pod in self._unended():
            if now - unix_seconds(pod.metadata.creation_timestamp or "") >= self._settings.node_seconds:
                log.warning("no node has come in answer to %s", name)
                self.planner.expired(name, now)
                self._end(name, ExpansionOutcome.EXPIRED)
            elif self._is_idle(name, now):
                log.info("no pod waits for the node of %s any more", name)
                self.planner.in_flight.drop(name)
                self._end(name, ExpansionOutcome.IDLE)
        for name, creation in tuple(self._creations.items()):
            if name not in self._shown and now - creation.at >= _IDLE_SECONDS:  # the watch has never shown it
                del self._creations[name]
                self.planner.in_flight.drop(name)

    def _unended(self) -> list[tuple[str, Pod]]:
        """Return the placeholders that have not done their work, the oldest first."""
        found = [(name, pod) for name, pod in self._shown.items() if name not in self._ended]
        return sorted(found, key=lambda each: each[1].metadata.creation_timestamp or "")

    def _end(self, name: str, outcome: ExpansionOutcome) -> None:
        self._metrics.expansions.labels(outcome.value).inc()
        self._ended.add(name)

    def _is_idle(self, name: str, now: float) -> bool:
        """Whether no pod has waited for a node for a while."""
        if self.planner.in_flight.promised_of(name):
            self._idle_since.pop(name, None)
            return False
        return now - self._idle_since.setdefault(name, now) >= max(_IDLE_SECONDS, 2 * self._settings.collect_seconds)

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
        self._creations[name] = _Creation(self._unix(), frozenset(self._state.node_cache.names))
        resource = self._settings.resource
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

    def _unmarked(self) -> list[ObjectMeta]:
        """Return the placeholders that autoscalers do not see as unschedulable yet."""
        return [
            pod.metadata for name, pod in self._shown.items() if name not in self._ended and not pod.status.conditions
        ]

    async def _delete_ended(self) -> None:
        self._has_answers.clear()
        await self._fenced.write_each(self._delete, [self._shown[name] for name in self._ended if name in self._shown])

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._fenced.delete(PODS, pod.metadata)
        except (NotFoundError, ConflictError):
            log.info("%s is gone already", pod)
        except ClusterError as error:
            log.warning("%s was not deleted, trying again: %s", pod, error)
        finally:  # its node opens even then: pods would wait for nothing else
            self._open(pod.metadata.name)

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
