"""Which agents are silent: a node's cards are believed only as long as its agent vouches for them.

An agent renews a Lease. Its age is judged by our own clock, from when we saw it change: clocks of different machines
are never compared, and a scheduler that has just started takes every Lease for fresh. Nothing has to happen for a node
to be silent: who asks finds out.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.names import HEARTBEAT_PREFIX, SYSTEM_NAMESPACE, heartbeat_lease
from cluster.metadata import ObjectMeta

_GRACE_SECONDS: Final = 60
"""How long a Lease may be missing, or is valid that does not say it itself: what agents write by default."""


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Who says until when that it lives. Two that are equal are the same sign of life."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(msgspec.Struct):
    """A Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class _Beat(msgspec.Struct, frozen=True):
    """The last sign of life, `spec`, or, None, when we began to miss the Lease."""

    spec: LeaseSpec | None
    seen_at: float
    seconds: int


class Heartbeats:
    """The Leases of agents, and the nodes from which we expect one."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Judge by `clock`, in seconds, which never goes back."""
        self._clock = clock
        self._beats: dict[str, _Beat] = {}
        self._expected: dict[str, str] = {}
        # Every decision asks who is silent, so all are looked at only when one may have become so.
        self._silent: set[str] = set()
        self._due = -math.inf

    def expect(self, node: str) -> None:
        """Judge `node` by its Lease from now on, because an agent of ours reports its cards."""
        name = heartbeat_lease(node)
        self._expected[name] = node
        if name not in self._beats:
            self._beats[name] = self._missing()
        self._due = -math.inf

    def pardon(self, node: str) -> None:
        """Judge `node` by its Lease no longer."""
        name = heartbeat_lease(node)
        self._expected.pop(name, None)
        self._silent.discard(name)
        beat = self._beats.get(name)
        if beat is not None and beat.spec is None:
            del self._beats[name]

    def set_lease(self, lease: Lease) -> bool:
        """Take a Lease; answer whether a silence ends with it.

        A change of anything but its spec is no sign of life.
        """
        name = lease.metadata.name
        old = self._beats.get(name)
        if not name.startswith(HEARTBEAT_PREFIX) or (old is not None and old.spec == lease.spec):
            return False
        was_silent = old is not None and name in self._expected and self._is_over(old)
        self._beats[name] = _Beat(lease.spec, self._clock(), lease.spec.lease_duration_seconds or _GRACE_SECONDS)
        self._silent.discard(name)
        self._due = min(self._due, self._beats[name].seen_at + self._beats[name].seconds)
        return was_silent

    def drop_lease(self, lease: Lease) -> None:
        """Forget a Lease; its agent has the time of grace to write it again."""
        name = lease.metadata.name
        if name in self._expected:
            self._beats[name] = self._missing()
            self._silent.discard(name)
            self._due = -math.inf
        else:
            self._beats.pop(name, None)

    def silences(self) -> dict[str, str]:
        """Answer the nodes whose agents are silent now, and how that shows."""
        now = self._clock()
        if now > self._due:
            self._silent = {name for name in self._expected if self._is_over(self._beats[name])}
            ends = (beat.seen_at + beat.seconds for beat in map(self._beats.__getitem__, self._expected))
            self._due = min((end for end in ends if end >= now), default=math.inf)
        silent = ((self._expected[name], name, self._beats[name]) for name in self._silent)
        return {node: _reason(node, name, beat, now - beat.seen_at) for node, name, beat in silent}

    def _missing(self) -> _Beat:
        return _Beat(None, self._clock(), _GRACE_SECONDS)

    def _is_over(self, beat: _Beat) -> bool:
        return self._clock() - beat.seen_at > beat.seconds


def _reason(node: str, name: str, beat: _Beat, age: float) -> str:
    """Say how long in doublings of what is allowed: a pod's reason must not change, and be written, at each try."""
    seconds = beat.seconds << ((math.ceil(age) - 1) // beat.seconds).bit_length() - 1
    state = "does not exist" if beat.spec is None else "was not renewed"
    return f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{name} {state} for more than {seconds} s"
