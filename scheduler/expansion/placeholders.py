"""The placeholders that ask for nodes: which there are, what ends them, and their deletion.

They are deleted by a task of their own, as soon as they have ended: a node that came in answer to one is closed until
then, whatever else is decided meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import Steps
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta, unix_seconds
from cluster.resource import PODS
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion import placeholder
from scheduler.expansion.planner import Planner
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import ExpansionOutcome
from scheduler.objects import Node, Pod
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 60.0
"""After this time without a pod that waits for it, a node is not asked for any more."""
_RETRY_SECONDS: Final = 5.0
"""A placeholder whose deletion failed is deleted again after this time."""
_DEADLINE_SECONDS: Final = 30.0


class _Creation(msgspec.Struct, frozen=True):
    """When a placeholder was created, and the nodes that existed then."""

    at: float
    nodes: frozenset[str]


class Placeholders:
    """The placeholders of one term."""

    def __init__(
        self,
        fenced: FencedApi,
        state: ClusterState,
        planner: Planner,
        *,
        metrics: Metrics,
        settings: ExpanderSettings,
        unix: Callable[[], float],
    ) -> None:
        """Tell `planner` which nodes have come, and which no longer will."""
        self._fenced = fenced
        self._state = state
        self._planner = planner
        self._metrics = metrics
        self._settings = settings
        self._unix = unix
        self._shown: dict[str, Pod] = {}
        """The placeholders that exist, by name."""
        self._creations: dict[str, _Creation] = {}
        """The placeholders that this term has created."""
        self._idle_since: dict[str, float] = {}
        self._ended: set[str] = set()
        """The placeholders that are to be deleted."""
        self._answers: set[str] = set()
        """The nodes that have come in answer to a placeholder."""
        self._answered: dict[str, str] = {}
        """The nodes that are closed until the placeholder that they answer has ended, by its name."""
        self._has_ended = asyncio.Event()

    @property
    def names(self) -> Collection[str]:
        """The names of the placeholders that exist."""
        return self._shown.keys()

    # ---- as the API server shows them ------------------------------------------------------------------------------

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
            self._planner.in_flight.drop(name)

    def set_node(self, node: Node | GpuNodeStatus, _old: Node | GpuNodeStatus | None = None) -> None:
        """Note that a node or its report, which has the node's name, may be what was asked for."""
        if self._shown:
            self._note_answer(node.metadata.name)

    def note_creation(self, name: str) -> None:
        """Note that a placeholder is about to be created: nodes that exist by now are not what it asks for."""
        self._creations[name] = _Creation(self._unix(), frozenset(self._state.node_cache.names))

    # ---- what ends them --------------------------------------------------------------------------------------------

    def note_answers(self) -> Steps[None]:
        """Note the nodes that came before their placeholders were shown, as to a new leader."""
        self._answers.intersection_update(self._state.node_cache.names)
        for node in tuple(self._state.node_cache.names) if self.unended else ():
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
        for name, pod in self.unended:
            creation = self._creations.get(name)
            if (creation is None or node not in creation.nodes) and placeholder.is_answered_by(pod, came):
                log.info("node %s has come in answer to %s", node, name)
                self._answers.add(node)
                self._answered[name] = node
                message = f"node {node} came in answer to pod {name}, which is about to be deleted"
                rejection = NodeRejection(NodeReason.NodeRequestOpen, message, resolvable=False)
                self._state.requested_nodes.set(node, rejection)
                self._end(name, ExpansionOutcome.ANSWERED)
                return

    def _open(self, name: str) -> None:
        """Open the node that came in answer to a placeholder, which has ended."""
        node = self._answered.pop(name, None)
        if node is not None:
            self._planner.arrived(name, node, self._unix())
            self._state.requested_nodes.set(node, None)

    def end_others(self, now: float) -> None:
        """End placeholders whose node has not come in time, and those that no pod waits for."""
        for name, pod in self.unended:
            if now - unix_seconds(pod.metadata.creation_timestamp or "") >= self._settings.node_seconds:
                log.warning("no node has come in answer to %s", name)
                self._planner.expired(name, now)
                self._end(name, ExpansionOutcome.EXPIRED)
            elif self._is_idle(name, now):
                log.info("no pod waits for the node of %s any more", name)
                self._planner.in_flight.drop(name)
                self._end(name, ExpansionOutcome.IDLE)
        for name, creation in tuple(self._creations.items()):
            if name not in self._shown and now - creation.at >= _IDLE_SECONDS:  # the watch has never shown it
                del self._creations[name]
                self._planner.in_flight.drop(name)

    @property
    def unended(self) -> list[tuple[str, Pod]]:
        """Return the placeholders that have not done their work, the oldest first."""
        found = [(name, pod) for name, pod in self._shown.items() if name not in self._ended]
        return sorted(found, key=lambda each: each[1].metadata.creation_timestamp or "")

    def _end(self, name: str, outcome: ExpansionOutcome) -> None:
        self._metrics.expansions.labels(outcome.value).inc()
        self._ended.add(name)
        self._has_ended.set()

    def _is_idle(self, name: str, now: float) -> bool:
        """Whether no pod has waited for a node for a while."""
        if self._planner.in_flight.promised_of(name):
            self._idle_since.pop(name, None)
            return False
        return now - self._idle_since.setdefault(name, now) >= max(_IDLE_SECONDS, 2 * self._settings.collect_seconds)

    @property
    def unmarked(self) -> list[ObjectMeta]:
        """Return the placeholders that autoscalers do not see as unschedulable yet."""
        return [
            pod.metadata for name, pod in self._shown.items() if name not in self._ended and not pod.status.conditions
        ]

    # ---- their deletion --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delete those that have ended, until cancelled or until this replica is not trusted any more."""
        while self._fenced.is_trusted:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._has_ended.wait()
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    await self.delete_ended()
            except TimeoutError:
                log.warning("requests for nodes: not deleted within %g s, trying again", _DEADLINE_SECONDS)
            except Exception:
                log.exception("internal error while requests for nodes were deleted")

    async def delete_ended(self) -> None:
        """Delete those that have ended and still exist."""
        self._has_ended.clear()
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
