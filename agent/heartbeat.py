"""The sign of life of a node's agent: one Lease per node.

Whoever places pods believes a node's cards only while its heartbeat is valid, so it vouches for what was published: it
is renewed after a publication and never while one is outstanding.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

from allocation import names
from cluster.resource import LEASES

_PREFIX: Final = "gpu-"
_LONGEST_NAME: Final = 253
_HASH_CHARACTERS: Final = 16


def lease_name(node: str) -> str:
    """Answer the name of `node`'s heartbeat Lease in the system namespace.

    A node's name may be as long as a Lease's, so one that leaves no room for the prefix ends in a hash of all of it.
    """
    name = _PREFIX + node
    if len(name) <= _LONGEST_NAME:
        return name
    suffix = "-" + hashlib.sha256(node.encode()).hexdigest()[:_HASH_CHARACTERS]
    return name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix


def lease(node: str, *, identity: str, seconds: int, unix: float) -> dict[str, Any]:
    """Answer the Lease by which `identity` says at time `unix` that `node`'s cards are reported for `seconds` more."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": lease_name(node), "namespace": names.SYSTEM_NAMESPACE},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": seconds,
            "renewTime": datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
