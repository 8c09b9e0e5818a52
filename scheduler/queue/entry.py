"""A pod in the scheduling queue, where it is, and why no node takes it."""

from collections.abc import Hashable
from typing import Literal

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import Amounts
from scheduler.objects import Pod
from scheduler.queue.lanes import Lane, Order

Place = Literal["active", "backoff", "unschedulable", "held", "binding"]


class Rejected(msgspec.Struct, frozen=True):
    """Why no node takes a pod now.

    Attributes:
        note: the reasons in words; empty if they were not computed.
        reasons: their codes, of cards, of nodes or of the pod itself; empty if they were not computed.
        is_held: whether only a change of the pod itself can help.
        kind: pods of one kind are rejected for the same reasons; None is a kind of its own.
        demand: what the pod requests, if it would fit as soon as other pods are gone; None if that would not help, or
            is not known.
    """

    note: str
    reasons: frozenset[str]
    is_held: bool = False
    kind: Hashable = None
    demand: Amounts | None = None


class Entry(msgspec.Struct, eq=False):
    """A pod without a node.

    Attributes:
        pod: its last known state.
        key: the queue that it belongs to.
        order: its sort key among the pods of that queue.
        since: when it was first seen, on the clock of the queue.
        unscheduled_since: since when it has waited for a node, in Unix seconds; an earlier leader may have seen it.
        waits_since: the same on the clock of the queue.
        place: where it is; `binding` once it is popped.
        attempts: failures with reasons so far.
        ready_at: when a pause ends: after a failed Binding, or until reasons that are out of date are computed again.
        published: the note that was last written to its condition.
        due_since: when it became active.
        reasons: the codes that were last published.
        tried: the serial number of the last event before it was popped.
        lane: the pods that are rejected for the same reasons; None unless it is unschedulable.
        explain: whether its next result must give reasons if no node takes it.
        is_stale: whether its reasons are out of date, and are computed again at `ready_at`.
        demand: what it requests, if it waited for cards or nodes to become free when its reasons were last computed;
            else None. It counts while the pod is unschedulable.
    """

    pod: Pod
    key: QueueKey
    order: Order
    since: float
    unscheduled_since: float = 0.0
    waits_since: float = 0.0
    place: Place = "active"
    attempts: int = 0
    ready_at: float = 0.0
    published: str = ""
    due_since: float = 0.0
    reasons: frozenset[str] = frozenset()
    tried: int = -1
    lane: Lane | None = None
    explain: bool = True
    is_stale: bool = False
    demand: Amounts | None = None


class QueuePosition(msgspec.Struct, frozen=True):
    """Where a pod without a node is in the scheduling queue.

    Attributes:
        place: `active`, scheduled next; `backoff`, after a failed Binding; `unschedulable` until one of `events`,
            or, without events, until the pod itself changes; or `binding`.
        attempts: failures so far.
        waited_seconds: the time since it was first seen.
        pause_seconds: the time until it is scheduled again, if it is in backoff.
        events: the kinds of events after which it is scheduled again.
    """

    place: Literal["active", "backoff", "unschedulable", "binding"]
    attempts: int
    waited_seconds: float
    pause_seconds: float
    events: tuple[str, ...]
