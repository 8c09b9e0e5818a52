"""The sign of life of a node's agent: one Lease per node.

Whoever places pods believes a node's cards only while its heartbeat is valid, so it vouches for what was published: it
is renewed after a publication and never while one is outstanding.
"""

from datetime import UTC, datetime
from typing import Any

from allocation import names
from cluster.resource import LEASES


def lease(node: str, *, identity: str, seconds: int, unix: float) -> dict[str, Any]:
    """Answer the Lease by which `identity` says at time `unix` that `node`'s cards are reported for `seconds` more."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": names.heartbeat_lease(node), "namespace": names.SYSTEM_NAMESPACE},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": seconds,
            "renewTime": datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
