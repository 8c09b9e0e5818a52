"""The Lease object: who holds it, and when the holder last renewed it."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from cluster.metadata import ObjectMeta
from cluster.resource import LEASES


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec` as it is read, and as it is written: a patch with it leaves the fields that are None as they are.

    The times are those of the holder's clock. A process that watches a Lease compares specs instead of clocks: two that
    are equal are the same sign of life.
    """

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None

    @property
    def renewed_at(self) -> float:
        """Return the time of the last renewal in Unix seconds, 0 if it is missing or not a time."""
        try:
            return datetime.fromisoformat(self.renew_time or "").astimezone(UTC).timestamp()
        except ValueError:
            return 0.0


class Lease(msgspec.Struct):
    """A Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


def manifest(name: str, *, namespace: str, spec: LeaseSpec) -> dict[str, Any]:
    """Return a Lease as the API server takes it to create or apply it."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": msgspec.to_builtins(spec),
    }
