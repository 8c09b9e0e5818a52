"""The agents that are silent, found by reading their Leases once.

The scheduler measures how long it has not seen a Lease change. A command reads each Lease only once, so it compares
clocks: the renewal time comes from the agent's clock, and now from the API server's.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from allocation.names import SYSTEM_NAMESPACE, heartbeat_lease, legacy_heartbeat_lease
from cluster.lease import Lease
from scheduler.state.agent_leases import GRACE_SECONDS

AgentState = Literal["Alive", "Silent", "Unknown", "None"]
"""The state of a node's agent; `None` for a node whose cards only a register annotation reports."""


class AgentCheck(msgspec.Struct, frozen=True):
    """The state of an agent; `since` and `message` are set only for a silent agent."""

    state: AgentState
    since: str = ""
    message: str = ""


class Agents:
    """The heartbeat Leases of a cluster at one moment."""

    def __init__(self, leases: Iterable[Lease] | None, *, now: float) -> None:
        """Take the Leases, or None if reading them is forbidden, and the Unix time `now` of the API server."""
        self._leases: Mapping[str, Lease] | None = (
            None if leases is None else {lease.metadata.name: lease for lease in leases if not lease.is_of_a_card}
        )
        self._now = now

    def of(self, node: str) -> AgentCheck:
        """Return the state of the agent that reports `node`."""
        if self._leases is None:
            return AgentCheck("Unknown")
        name = heartbeat_lease(node)
        both = (self._leases.get(each) for each in (name, legacy_heartbeat_lease(node)))
        lease = max((each for each in both if each is not None), key=lambda each: each.spec.renewed_at, default=None)
        prefix = f"agent of node {node} is silent: Lease {SYSTEM_NAMESPACE}/{lease.metadata.name if lease else name}"
        renewed = lease.spec.renew_time if lease is not None else None
        if lease is None or renewed is None:
            return AgentCheck("Silent", message=f"{prefix} does not exist; see the agent's pod on that node")
        age = self._now - lease.spec.renewed_at
        seconds = lease.spec.lease_duration_seconds or GRACE_SECONDS
        if age <= seconds:
            return AgentCheck("Alive")
        message = f"{prefix} was last renewed at {renewed}; see the agent's pod on that node"
        return AgentCheck("Silent", renewed, message)
