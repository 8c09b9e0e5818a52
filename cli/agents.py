"""Which agents are silent, by one look at their Leases.

The scheduler judges by how long it has not seen a Lease change. Who looks only once has to compare clocks: the agent's,
which wrote the time of renewal, with the API server's.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from allocation.names import SYSTEM_NAMESPACE, heartbeat_lease
from cli.usage import Agent
from scheduler.heartbeats import Lease

_GRACE_SECONDS: Final = 60


class Life(msgspec.Struct, frozen=True):
    """Whether an agent lives; `since` and `message` are empty where it does not matter."""

    agent: Agent
    since: str = ""
    message: str = ""


class Agents:
    """The Leases of a cluster at one moment."""

    def __init__(self, leases: Iterable[Lease] | None, *, now: float) -> None:
        """Judge `leases`, None where they may not be read, at Unix time `now` of the API server."""
        self._leases: Mapping[str, Lease] | None = (
            None if leases is None else {lease.metadata.name: lease for lease in leases}
        )
        self._now = now

    def of(self, node: str) -> Life:
        """Answer whether the agent that reports `node` lives."""
        if self._leases is None:
            return Life("Unknown")
        name = heartbeat_lease(node)
        spoken = f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{name}"
        lease = self._leases.get(name)
        renewed = lease.spec.renew_time if lease is not None else None
        if lease is None or renewed is None:
            return Life("Silent", message=f"{spoken} does not exist; see the agent's pod on that node")
        age = self._now - _unix(renewed)
        seconds = lease.spec.lease_duration_seconds or _GRACE_SECONDS
        if age <= seconds:
            return Life("Alive")
        return Life("Silent", renewed, f"{spoken} was last renewed at {renewed}; see the agent's pod on that node")


def _unix(time: str) -> float:
    try:
        return datetime.fromisoformat(time).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0  # whoever wrote no time has given no sign of life
