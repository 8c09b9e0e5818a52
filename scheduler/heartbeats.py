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

    def expect(self, node: str) -> None:
        """Judge `node` by its Lease from now on, because an agent of ours reports its cards."""
        name = heartbeat_lease(node)
        self._expected[name] = node
        if name not in self._beats:
            self._beats[name] = self._missing()

    def pardon(self, node: str) -> None:
        """Judge `node` by its Lease no longer."""
        name = heartbeat_lease(node)
        self._expected.pop(name, None)
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
        return was_silent

    def drop_lease(self, lease: Lease) -> None:
        """Forget a Lease; its agent has the time of grace to write it again."""
        name = lease.metadata.name
        if name in self._expected:
            self._beats[name] = self._missing()
        else:
            self._beats.pop(name, None)

    def silences(self) -> dict[str, str]:
        """Answer the nodes whose agents are silent now, and how that shows."""
        now = self._clock()
        return {
            node: _reason(node, name, beat, now - beat.seen_at)
            for name, node in self._expected.items()
            if now - (beat := self._beats[name]).seen_at > beat.seconds
        }

    def _missing(self) -> _Beat:
        return _Beat(None, self._clock(), _GRACE_SECONDS)

    def _is_over(self, beat: _Beat) -> bool:
        return self._clock() - beat.seen_at > beat.seconds


def _reason(node: str, name: str, beat: _Beat, age: float) -> str:
    """Say how long in doublings of what is allowed: a pod's reason must not change, and be written, at each try."""
    seconds = beat.seconds << ((math.ceil(age) - 1) // beat.seconds).bit_length() - 1
    state = "does not exist" if beat.spec is None else "was not renewed"
    return f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{name} {state} for more than {seconds} s"
