"""Check whether a Lease is held.

The renewal time comes from the holder's clock. A Lease that seems to have expired is therefore watched for a while: an
observed renewal proves that there is a holder, whatever its clock says.
"""

import time
from typing import Final

from cli.kube.client import Client
from cluster.lease import Lease
from cluster.resource import LEASES
from scheduler.state.agent_leases import GRACE_SECONDS

_INTERVAL_SECONDS: Final = 0.5
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 5.0
_RENEWALS: Final = 3
"""A holder renews its Lease at least this often before the Lease expires."""


def find(client: Client, *, namespace: str, name: str) -> Lease | None:
    """Return a Lease, or None if it does not exist; requires the right to list."""
    leases = client.list(LEASES, Lease, namespace=namespace, field_selector=f"metadata.name={name}")
    return leases[0] if leases else None


def problem(client: Client, *, namespace: str, name: str) -> str:
    """Return the reason why a Lease is not held, to follow its name in a sentence, or an empty string."""
    first = find(client, namespace=namespace, name=name)
    reason = fault(first, now=time.time() + client.clock_ahead)
    if not reason or first is None:
        return reason
    seconds = (first.spec.lease_duration_seconds or GRACE_SECONDS) / _RENEWALS
    deadline = time.monotonic() + min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
    while time.monotonic() < deadline:
        time.sleep(_INTERVAL_SECONDS)
        later = find(client, namespace=namespace, name=name)
        if later is not None and later.spec.holder_identity and later.spec != first.spec:
            return ""
    return reason


def fault(lease: Lease | None, *, now: float) -> str:
    """Return the reason why `lease`, by its own fields, is not held at Unix time `now`, or an empty string."""
    if lease is None:
        return "does not exist: it was never held"
    if not lease.spec.holder_identity:
        return "has no holder"
    age = now - lease.spec.renewed_at
    if age <= (lease.spec.lease_duration_seconds or GRACE_SECONDS):
        return ""
    return f"was last renewed at {lease.spec.renew_time} by {lease.spec.holder_identity}, {age:.0f} s ago"
