"""The Leases of agents: a node's reported cards are valid only while its agent renews its Lease.

The age of a Lease is measured by the scheduler's own clock from the last change that it saw: clocks of different
machines are never compared, and a scheduler that has just started takes every Lease as fresh. Expiry needs no event and
no timer: `refresh` finds it, which has nothing to do before `due`.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.names import (
    HEARTBEAT_PREFIX,
    LEGACY_HEARTBEAT_PREFIX,
    SYSTEM_NAMESPACE,
    heartbeat_lease,
    legacy_heartbeat_lease,
)
from allocation.reasons import NodeReason, NodeRejection
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from scheduler.filters.node_rejections import NodeRejections

GRACE_SECONDS: Final = 60
"""Grace period for a missing Lease, and the duration of one without leaseDurationSeconds: the agents' default."""


class _Renewal(msgspec.Struct, frozen=True):
    """The last renewal of a Lease, or, where `spec` is None, the time since which the Lease is missing."""

    name: str
    spec: LeaseSpec | None
    seen_at: float
    seconds: int

    @property
    def expires_at(self) -> float:
        """The time after which the Lease has expired."""
        return self.seen_at + self.seconds


class AgentLeases:
    """The Leases of agents, and the nodes that must have one.

    An agent of an early version renews a Lease of another name; of the two Leases of a node the one that expires later
    counts.

    Attributes:
        rejections: the rejections by the nodes whose Leases have expired.
        due: when a Lease may expire, or the rejection of an expired one may change.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Measure ages by `clock`, in seconds, which must be monotonic."""
        self._clock = clock
        self._renewals: dict[str, _Renewal] = {}
        self._tracked: dict[str, tuple[str, str]] = {}
        """The names of the Lease of each node, the present one and that of an agent of an early version."""
        self._nodes: dict[str, str] = {}
        self._legacy: dict[str, LeaseMeta] = {}
        self.rejections = NodeRejections()
        self.due = math.inf

    def track(self, node: str) -> None:
        """Require a Lease of `node` from now on, because an agent reports its cards."""
        names = self._tracked[node] = (heartbeat_lease(node), legacy_heartbeat_lease(node))
        self._nodes.update(dict.fromkeys(names, node))
        if names[0] not in self._renewals:
            self._renewals[names[0]] = self._missing(names[0])
        self._update(node, self._clock())

    def untrack(self, node: str) -> None:
        """Stop requiring a Lease of `node`."""
        names = self._tracked.pop(node, ())
        self.rejections.set(node, None)
        for name in names:
            self._nodes.pop(name, None)
            renewal = self._renewals.get(name)
            if renewal is not None and renewal.spec is None:
                del self._renewals[name]

    def set_lease(self, lease: Lease) -> None:
        """Set the state of a Lease other than that of a card. A change of anything but its spec is not a renewal."""
        name = lease.metadata.name
        if name.startswith(LEGACY_HEARTBEAT_PREFIX):
            self._legacy[name] = lease.metadata
        elif not name.startswith(HEARTBEAT_PREFIX):
            return
        old = self._renewals.get(name)
        if old is not None and old.spec == lease.spec:
            return
        now, node = self._clock(), self._nodes.get(name)
        self._renewals[name] = _Renewal(name, lease.spec, now, lease.spec.lease_duration_seconds or GRACE_SECONDS)
        if node is not None:
            self._update(node, now)

    def drop_lease(self, lease: Lease) -> None:
        """Forget a Lease; its agent has the grace period to create it again."""
        name = lease.metadata.name
        self._legacy.pop(name, None)
        node = self._nodes.get(name)
        if self._renewals.pop(name, None) is None or node is None:
            return
        present = self._tracked[node][0]
        if present not in self._renewals or self._renewals[present].spec is None:
            self._renewals[present] = self._missing(present)
        self._update(node, self._clock())

    def has_expired(self, node: str) -> bool:
        """Whether a node must have a Lease, and it has expired."""
        return node in self._tracked and self._clock() > self._renewal(node).expires_at

    def refresh(self, now: float) -> None:
        """Reject the nodes whose Leases have expired."""
        self.due = math.inf
        for node in self._tracked:
            self._update(node, now)

    def superseded(self) -> list[LeaseMeta]:
        """Return the Leases of agents of early versions whose nodes have the present Lease, too.

        Their names may be those of the Leases of cards.
        """
        found = []
        for present, legacy in self._tracked.values():
            meta, renewal = self._legacy.get(legacy), self._renewals.get(present)
            if meta is not None and renewal is not None and renewal.spec is not None:
                found.append(meta)
        return found

    def _update(self, node: str, now: float) -> None:
        """Reject a node if its Lease has expired, and accept it otherwise."""
        renewal = self._renewal(node)
        due, rejection = renewal.expires_at, None
        if now > due:
            due, rejection = _silence(node, renewal, now)
        self.rejections.set(node, rejection)
        self.due = min(self.due, due)

    def _missing(self, name: str) -> _Renewal:
        return _Renewal(name, None, self._clock(), GRACE_SECONDS)

    def _renewal(self, node: str) -> _Renewal:
        """Return the renewal that counts for a node."""
        names = self._tracked[node]
        present, legacy = self._renewals[names[0]], self._renewals.get(names[1])
        if legacy is None or (present.spec is not None and present.expires_at >= legacy.expires_at):
            return present
        return legacy


def _silence(node: str, renewal: _Renewal, now: float) -> tuple[float, NodeRejection]:
    """Return the rejection by the node of a silent agent, and the time until which it stays as it is.

    Its message gives the length of the silence in doublings of the Lease's duration: a message that changed with every
    decision would be written to the API server after each of them.
    """
    durations = max(1, (math.ceil(now - renewal.seen_at) - 1) // renewal.seconds)  # rounding may make it 0
    seconds = renewal.seconds << durations.bit_length() - 1
    state = "does not exist" if renewal.spec is None else "was not renewed"
    message = (
        f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{renewal.name} {state} for more than {seconds} s"
    )
    return renewal.seen_at + 2 * seconds, NodeRejection(NodeReason.AgentSilent, message, resolvable=False)
