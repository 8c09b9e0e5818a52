"""One pod: its way from its creation to its start, what its containers see, and what enforces their limits."""

from collections import deque
from collections.abc import Mapping

import msgspec

from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.steps import Steps
from allocation.wire import environment
from cluster.events import Recorded
from cluster.metadata import unix_seconds
from scheduler.api.json_names import json_name
from scheduler.objects import Pod
from scheduler.state.running_allocation import running_allocation
from scheduler.term import LeaderTerm
from scheduler.ui.sections.decisions import Decision, decision
from scheduler.ui.sections.rows import LONGEST_TEXT, fill
from scheduler.ui.sections.waiting import Requested, requested
from scheduler.ui.table import Table

_BOUND = "FilteringSucceed"
"""The reason of the event that a Binding is followed by."""


class ShownShare(msgspec.Struct, frozen=True, rename=json_name):
    """A share of a container."""

    uuid: str
    index: int
    memory_mib: int
    cores: int
    whole: bool
    parent: str


class ShownContainer(msgspec.Struct, frozen=True, rename=json_name):
    """A container with cards: its shares, and the variables by which it sees them."""

    name: str
    shares: tuple[ShownShare, ...]
    environment: dict[str, str]


class PodRow(msgspec.Struct, frozen=True, rename=json_name):
    """The pod.

    Attributes:
        uid: of the pod.
        phase: `Pending`, `Running`, `Succeeded` or `Failed`.
        state: `waiting`, `gated`, `binding`, `placed`, `finished` or `foreign`: another scheduler places it.
        created: in Unix seconds, as are the other times; None is unknown, or not yet.
        waits_since: since when it has waited for a node; None for a pod with one.
        decided: when its Binding was written; None also if that was too long ago, or by another leader.
        started: when its node accepted it.
        node: its node, or the one that it is being bound to; empty without one.
        queue: the queue that is charged; empty if none is.
        requested: by container; None if that cannot be read.
        containers: the containers with cards.
        problem: why its allocation cannot be read; empty if it can.
        isolation: what can enforce limits on its node; None if no agent reports it.
        decisions: what the scheduler said about it last, the newest last.
    """

    uid: str
    phase: str
    state: str
    created: float | None
    waits_since: float | None
    decided: float | None
    started: float | None
    node: str
    queue: str
    requested: tuple[Requested, ...] | None
    containers: tuple[ShownContainer, ...]
    problem: str
    isolation: tuple[str, ...] | None
    decisions: tuple[Decision, ...]


class PodDetail:
    """The row of one pod; none if it does not exist."""

    def __init__(self, term: LeaderTerm, name: str, recent: deque[Recorded]) -> None:
        self._state, self._informers, self._recent = term.state, term.informers, recent
        self._namespace, _, self._name = name.partition("/")

    def refresh(self, table: Table) -> Steps[None]:
        """Read the pod."""
        pod = self._informers.pods.get(self._name, self._namespace)
        rows = ((f"{self._namespace}/{self._name}", self._namespace, self._row(pod)),) if pod is not None else ()
        yield from fill(table, rows)

    def _row(self, pod: Pod) -> PodRow:
        state, entry = self._state, self._state.queue.get(pod.uid)
        containers, problem = self._containers(pod)
        node = pod.spec.node_name or state.node_cache.node_of(pod.uid)
        report = self._informers.statuses.get(node)
        recorded = [each for each in self._recent if each.event.regarding.uid == pod.uid]
        key = state.fair_share.use.owner(pod.uid)
        return PodRow(
            uid=pod.uid,
            phase=pod.status.phase,
            state=self._shown_state(pod),
            created=unix_seconds(pod.metadata.creation_timestamp or "") or None,
            waits_since=entry.unscheduled_since if entry is not None else None,
            decided=next((each.at for each in recorded if each.event.reason == _BOUND), None),
            started=unix_seconds(pod.status.start_time) or None,
            node=node,
            queue=str(entry.key) if entry is not None else str(key) if key is not None else "",
            requested=requested(state, pod) if state.is_ours(pod) else None,
            containers=containers,
            problem=problem[:LONGEST_TEXT],
            isolation=tuple(report.status.isolation) if report is not None and report.status is not None else None,
            decisions=tuple(decision(each) for each in recorded[-20:]),
        )

    def _shown_state(self, pod: Pod) -> str:
        if pod.finished:
            return "finished"
        if pod.spec.node_name:
            return "placed"
        if not self._state.is_ours(pod):
            return "foreign"
        if pod.spec.scheduling_gates:
            return "gated"
        return "binding" if self._state.node_cache.is_assumed(pod.uid) else "waiting"

    def _containers(self, pod: Pod) -> tuple[tuple[ShownContainer, ...], str]:
        try:
            held = running_allocation(pod, self._state.settings)
        except AllocationError as error:
            return (), str(error)
        if held is None:
            return (), ""
        allocation = held[0]
        return tuple(self._container(pod, name, allocation) for name in allocation.containers), ""

    def _container(self, pod: Pod, name: str, allocation: Allocation) -> ShownContainer:
        shares = allocation.containers[name]
        return ShownContainer(
            name=name,
            shares=tuple(
                ShownShare(each.uuid, each.index, each.memory_mib, each.cores, each.whole, each.parent)
                for each in shares
            ),
            environment=dict(self._environment(pod, name, allocation)),
        )

    def _environment(self, pod: Pod, container: str, allocation: Allocation) -> Mapping[str, str]:
        """Return the variables that the Binding has set."""
        claim = allocation.claim
        spec = self._state.claims.find(pod.metadata.namespace, claim.name) if claim is not None else None
        return environment.values(
            allocation.containers[container],
            self._state.deliveries.of(allocation.node),
            visible_as=spec.devices.visible_as if spec is not None else "UUID",
        )
