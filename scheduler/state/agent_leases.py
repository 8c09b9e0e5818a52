"""The Leases of agents: a node's reported cards are valid only while its agent renews its Lease.

The age of a Lease is measured by the scheduler's own clock from the last change that it saw: clocks of different
machines are never compared, and a scheduler that has just started takes every Lease as fresh. Expiry needs no event and
no timer: `expired` computes it.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.names import HEARTBEAT_PREFIX, SYSTEM_NAMESPACE, heartbeat_lease
from allocation.reasons import NodeReason, NodeRejection
from cluster.lease import Lease, LeaseSpec

GRACE_SECONDS: Final = 60
"""Grace period for a missing Lease, and the duration of one without leaseDurationSeconds: the agents' default."""


class _Renewal(msgspec.Struct, frozen=True):
    """The last renewal of a Lease, or, where `spec` is None, the time since which the Lease is missing."""

    spec: LeaseSpec | None
    seen_at: float
    seconds: int


class AgentLeases:
    """The Leases of agents, and the nodes that must have one."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Measure ages by `clock`, in seconds, which must be monotonic."""
        self._clock = clock
        self._renewals: dict[str, _Renewal] = {}
        self._tracked: dict[str, str] = {}
        # Every scheduling decision asks for expired Leases, so all are checked only when one may have expired.
        self._expired: set[str] = set()
        self._next_expiry = -math.inf

    def track(self, node: str) -> None:
        """Require a Lease of `node` from now on, because an agent reports its cards."""
        name = heartbeat_lease(node)
        self._tracked[name] = node
        if name not in self._renewals:
            self._renewals[name] = self._missing()
        self._next_expiry = -math.inf

    def untrack(self, node: str) -> None:
        """Stop requiring a Lease of `node`."""
        name = heartbeat_lease(node)
        self._tracked.pop(name, None)
        self._expired.discard(name)
        renewal = self._renewals.get(name)
        if renewal is not None and renewal.spec is None:
            del self._renewals[name]

    def set_lease(self, lease: Lease) -> bool:
        """Set the state of a Lease; return whether it had expired and is renewed.

        A change of anything but its spec is not a renewal.
        """
        name = lease.metadata.name
        old = self._renewals.get(name)
        if not name.startswith(HEARTBEAT_PREFIX) or (old is not None and old.spec == lease.spec):
            return False
        had_expired = old is not None and name in self._tracked and self._is_expired(old)
        self._renewals[name] = _Renewal(lease.spec, self._clock(), lease.spec.lease_duration_seconds or GRACE_SECONDS)
        self._expired.discard(name)
        self._next_expiry = min(self._next_expiry, self._renewals[name].seen_at + self._renewals[name].seconds)
        return had_expired

    def drop_lease(self, lease: Lease) -> None:
        """Forget a Lease; its agent has the grace period to create it again."""
        name = lease.metadata.name
        if name in self._tracked:
            self._renewals[name] = self._missing()
            self._expired.discard(name)
            self._next_expiry = -math.inf
        else:
            self._renewals.pop(name, None)

    def expired(self) -> dict[str, NodeRejection]:
        """Return the rejections by the nodes whose Leases have expired."""
        now = self._clock()
        if now > self._next_expiry:
            self._expired = {name for name in self._tracked if self._is_expired(self._renewals[name])}
            expiries = (renewal.seen_at + renewal.seconds for renewal in map(self._renewals.__getitem__, self._tracked))
            self._next_expiry = min((each for each in expiries if each >= now), default=math.inf)
        expired = ((self._tracked[name], name, self._renewals[name]) for name in self._expired)
        return {node: _rejection(node, name, renewal, now - renewal.seen_at) for node, name, renewal in expired}

    def _missing(self) -> _Renewal:
        return _Renewal(None, self._clock(), GRACE_SECONDS)

    def _is_expired(self, renewal: _Renewal) -> bool:
        return self._clock() - renewal.seen_at > renewal.seconds


def _rejection(node: str, name: str, renewal: _Renewal, age: float) -> NodeRejection:
    """Return the rejection by the node of a silent agent.

    Its message gives the length of the silence in doublings of the Lease's duration: a message that changed with every
    decision would be written to the API server after each of them.
    """
    seconds = renewal.seconds << ((math.ceil(age) - 1) // renewal.seconds).bit_length() - 1
    state = "does not exist" if renewal.spec is None else "was not renewed"
    message = f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{name} {state} for more than {seconds} s"
    return NodeRejection(NodeReason.AgentSilent, message, resolvable=False)
