"""Leases as they are read and written."""

from __future__ import annotations

import msgspec
import pytest

from cluster.lease import Lease, LeaseSpec, manifest


def test_patch_contains_only_changed_fields() -> None:
    """A release writes an empty holder and leaves the times of the Lease as they are."""
    assert msgspec.to_builtins(LeaseSpec(holder_identity="")) == {"holderIdentity": ""}


def test_written_lease_is_read_back() -> None:
    """Every field survives, and the object names its kind."""
    spec = LeaseSpec("us", 15, "2026-01-01T00:00:00.500000Z", 3, "2026-01-01T00:00:00.000000Z")
    written = msgspec.json.encode(manifest("leader", namespace="system", spec=spec))
    assert msgspec.json.decode(written)["apiVersion"] == "coordination.k8s.io/v1"
    assert msgspec.json.decode(written, type=Lease).spec == spec


@pytest.mark.parametrize(
    ("time", "unix"),
    [
        ("1970-01-01T00:00:01.500000Z", 1.5),
        ("1970-01-01T01:00:01.500000+01:00", 1.5),
        ("yesterday", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_invalid_renew_time_counts_as_the_oldest(time: str | None, unix: float) -> None:
    """The holder has given no sign of life that could be dated."""
    assert LeaseSpec(renew_time=time).renewed_at == unix
