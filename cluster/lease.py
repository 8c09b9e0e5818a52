"""The Lease object: who holds it, and when the holder last renewed it."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from allocation import names
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


class LeaseLabels(msgspec.Struct, frozen=True, gc=False, rename={"managed": names.MANAGED_LABEL}):
    """The labels that a reader needs."""

    managed: str = ""


class LeaseAnnotations(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"leader": names.LEADER, "pod_ref": names.POD_REF, "node": names.NODE, "card": names.CARD},
):
    """The annotations that a reader needs: those of a Lease that says which pod has a card."""

    leader: str = ""
    pod_ref: str = ""
    node: str = ""
    card: str = ""


class LeaseMeta(ObjectMeta, rename="camel", gc=False):
    """The metadata of a Lease; most are heartbeats, which have neither labels nor annotations."""

    labels: LeaseLabels | None = None
    annotations: LeaseAnnotations | None = None


class Lease(msgspec.Struct):
    """A Lease of the API group coordination.k8s.io: of a leader, an agent or a card."""

    metadata: LeaseMeta
    spec: LeaseSpec = LeaseSpec()

    @property
    def is_of_a_card(self) -> bool:
        """Whether it says which pod has a card; agents of early versions have heartbeats with the same prefix."""
        labels = self.metadata.labels
        return labels is not None and labels.managed == "true"


def manifest(name: str, *, namespace: str, spec: LeaseSpec) -> dict[str, Any]:
    """Return a Lease as the API server takes it to create or apply it."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": msgspec.to_builtins(spec),
    }
