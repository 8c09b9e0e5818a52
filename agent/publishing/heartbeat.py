"""The heartbeat of a node's agent: one Lease per node.

The scheduler trusts a node's cards only while the heartbeat is valid. The heartbeat therefore vouches for the published
report: the agent renews it after each publication, and never while a publication is outstanding.
"""

from typing import Any

from allocation import names
from cluster.lease import LeaseSpec, manifest
from cluster.metadata import micro_time


def lease(node: str, *, identity: str, seconds: int, unix: float) -> dict[str, Any]:
    """Return the Lease in which `identity` vouches at Unix time `unix` for `node`'s cards, for the next `seconds`."""
    spec = LeaseSpec(holder_identity=identity, lease_duration_seconds=seconds, renew_time=micro_time(unix))
    return manifest(names.heartbeat_lease(node), namespace=names.SYSTEM_NAMESPACE, spec=spec)
