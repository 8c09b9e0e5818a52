"""The pods without a node: why each waits, what would help, and its place in the queue.

A pod is read again only when something about it changed, so that ten thousand waiting pods cost little.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.request import read_request
from allocation.steps import Steps
from scheduler.api.json_names import json_name
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.state.cluster_state import ClusterState
from scheduler.term import LeaderTerm
from scheduler.ui.sections.rows import LONGEST_TEXT, Keyed, fill
from scheduler.ui.table import Table

RANKED: Final = 500
"""The pods whose place in the queue is shown; behind them a place changes with every decision, and says little."""
_STEP: Final = 100


class Requested(msgspec.Struct, frozen=True, rename=json_name):
    """The cards that a container requests; `memory_mib` is None if `memory_percent` says how much."""

    container: str
    cards: int
    memory_mib: int | None
    memory_percent: int
    cores: int


class Held(msgspec.Struct, frozen=True, rename=json_name):
    """The cards that are held for the pod: on which node, why, and how many pods have to end first."""

    node: str
    cause: str
    awaited: int


class WaitingRow(msgspec.Struct, frozen=True, rename=json_name):
    """A pod without a node.

    Attributes:
        place: `active`, scheduled next; `backoff`, after a failed Binding; `unschedulable` until one of `events`;
            `held` until the pod changes; `binding`; or `external`, kube-scheduler has it in its queue.
        since: since when it has waited, in Unix seconds.
        attempts: failures with reasons so far.
        priority: of the pod.
        queue: the GpuQueue that is charged, or `namespace/NAME`.
        requested: by container; None if that cannot be read.
        reasons: the codes of why no node takes it; empty if they are not known.
        note: the same in words, as in its event.
        events: the kinds of events after which it is tried again.
        hold: what is held for it; None if nothing is.
        gang: the gang that it gets a node with; empty if it gets one alone.
    """

    place: str
    since: int
    attempts: int
    priority: int
    queue: str
    requested: tuple[Requested, ...] | None
    reasons: tuple[str, ...] = ()
    note: str = ""
    events: tuple[str, ...] = ()
    hold: Held | None = None
    gang: str = ""


class Waiting:
    """The pods."""

    def __init__(self, term: LeaderTerm) -> None:
        self._state, self._informers = term.state, term.informers
        self._seen: dict[str, tuple[Pod, object]] = {}

    def refresh(self, table: Table) -> Steps[None]:
        """Read the pods that changed."""
        if not self._state.has_queue:
            yield from fill(table, self._external())
            return
        seen = dict[str, tuple[Pod, object]]()
        external = set[str]()
        for number, (key, namespace, row) in enumerate(self._external(), start=1):
            table.put(key, msgspec.json.encode(row), namespace=namespace)
            external.add(key)
            if number % _STEP == 0:
                yield
        for number, entry in enumerate(self._state.queue, start=1):
            key, mark = str(entry.pod), _mark(self._state, entry)
            before = self._seen.get(key)
            seen[key] = entry.pod, mark
            if before is None or before[0] is not entry.pod or before[1] != mark:
                content = msgspec.json.encode(_row(self._state, entry))
                table.put(key, content, namespace=entry.pod.metadata.namespace)
            if number % _STEP == 0:
                yield
        table.retain(seen.keys() | external)
        self._seen = seen

    def _external(self) -> Iterator[Keyed]:
        """Yield the pods that kube-scheduler has in its queue, whose reasons only it knows."""
        state = self._state
        for pod in tuple(state.handed_over.values() if state.has_queue else self._informers.pods):
            if state.is_ours(pod) and not pod.spec.node_name and not pod.finished:
                row = WaitingRow("external", 0, 0, pod.spec.priority, "", requested(state, pod))
                yield str(pod), pod.metadata.namespace, row


class Ranks:
    """The place of each of the first pods in the order in which a free card is offered to them, from 1."""

    def __init__(self, term: LeaderTerm) -> None:
        self._state = term.state

    def refresh(self, table: Table) -> Steps[None]:
        """Rank the pods for which another pod's end, or a change of the cluster, may be enough."""
        ordered = [entry for entry in self._state.queue.in_order() if entry.place != "held"]
        yield
        yield from fill(
            table,
            (
                (str(entry.pod), entry.pod.metadata.namespace, _Rank(rank))
                for rank, entry in enumerate(ordered[:RANKED], 1)
            ),
        )


class _Rank(msgspec.Struct, frozen=True):
    rank: int


def requested(state: ClusterState, pod: Pod) -> tuple[Requested, ...] | None:
    """Return the cards that each container requests; None if that cannot be read."""
    try:
        request = read_request(pod.spec, state.settings)
    except AllocationError:
        return None
    return tuple(
        Requested(each.name, each.count, each.memory_mib, each.memory_percent, each.cores)
        for each in request.gpu_containers
    )


def _mark(state: ClusterState, entry: Entry) -> object:
    """Return what stays equal as long as the row of a pod does, if the pod is the same object."""
    lane, hold = entry.lane, state.holds.of(entry.pod.uid)
    note = entry.published or (lane.note if lane is not None else "")
    return entry.place, entry.attempts, str(entry.key), note, entry.reasons, hold


def _row(state: ClusterState, entry: Entry) -> WaitingRow:
    pod, lane, hold = entry.pod, entry.lane, state.holds.of(entry.pod.uid)
    gang = state.gangs.of(pod.uid) if state.gangs.waits_for_others(pod) else None
    events = tuple(str(event.name).lower() for event in lane.events) if lane is not None else ()
    return WaitingRow(
        place=entry.place,
        since=round(entry.unscheduled_since),
        attempts=entry.attempts,
        priority=pod.spec.priority,
        queue=str(entry.key),
        requested=requested(state, pod),
        reasons=tuple(sorted(entry.reasons)),
        note=(entry.published or (lane.note if lane is not None else ""))[:LONGEST_TEXT],
        events=events,
        hold=Held(hold.node, hold.cause, len(hold.awaited)) if hold is not None else None,
        gang=gang.key.name if gang is not None else "",
    )
