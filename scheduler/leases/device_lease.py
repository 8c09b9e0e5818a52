"""The Lease of a card: which pod has the card (docs/claims.md#leases).

The scheduler creates one for each card of an exclusive claim, and for each MIG instance of a claim, before the pod's
Binding. Its name is that of the card, so the API server gives a card to one pod only. Such a Lease is created and
deleted, and never changed.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.inventory import NodeInventory
from cluster.lease import Lease, LeaseSpec, manifest
from cluster.metadata import micro_time

DURATION_SECONDS: Final = 60
"""`leaseDurationSeconds`, for readers: the scheduler itself asks whether the holder lives, whatever the age."""


class DeviceLease(msgspec.Struct, frozen=True, gc=False):
    """The Lease of a card as it was read.

    Attributes:
        name: that of the Lease.
        uid: the Lease's UID.
        version: its resourceVersion.
        holder: the UID of the pod that has the card.
        token: that of the leader that created the Lease.
        namespace: the namespace of the pod; empty if the Lease does not name it.
        pod: the name of the pod.
        node: the node of the card.
        card: the UUID of the card or MIG instance.
    """

    name: str
    uid: str
    version: str
    holder: str
    token: str
    namespace: str
    pod: str
    node: str
    card: str

    @classmethod
    def of(cls, lease: Lease) -> Self | None:
        """Return a Lease as that of a card; None for a Lease of anything else, such as a heartbeat."""
        meta = lease.metadata
        if not lease.is_of_a_card or meta.annotations is None:
            return None
        marks = meta.annotations
        namespace, _, pod = marks.pod_ref.partition("/")
        holder = lease.spec.holder_identity or ""
        return cls(
            *(meta.name, meta.uid, meta.resource_version, holder),
            *(marks.leader, namespace, pod, marks.node, marks.card),
        )

    @property
    def epoch(self) -> int:
        """The epoch of the leader that created the Lease."""
        return epoch(self.token)

    @property
    def pod_reference(self) -> str:
        """The pod, for messages."""
        return f"{self.namespace}/{self.pod}" if self.pod else f"with UID {self.holder}"


def epoch(token: str) -> int:
    """Return the epoch of a leader's token, `<epoch>/<identity>`; 0 if it has none."""
    number = token.partition("/")[0]
    return int(number) if number.isdecimal() else 0


class LeasedPod(msgspec.Struct, frozen=True):
    """A pod that must hold a Lease for each card of its allocation."""

    namespace: str
    name: str
    uid: str
    allocation: Allocation

    @property
    def cards(self) -> dict[str, CardShare]:
        """The pod's cards and MIG instances by UUID; the containers of a claim have the same cards."""
        return {share.uuid: share for shares in self.allocation.containers.values() for share in shares}


class PlannedLease(msgspec.Struct, frozen=True):
    """A Lease that a pod must hold."""

    name: str
    card: str
    pod: LeasedPod

    def body(self, *, unix: float) -> dict[str, Any]:
        """Return the object to create at Unix time `unix`, but for the leader's token."""
        now, pod, claim = micro_time(unix), self.pod, self.pod.allocation.claim
        spec = LeaseSpec(
            holder_identity=pod.uid, lease_duration_seconds=DURATION_SECONDS, acquire_time=now, renew_time=now
        )
        body = manifest(self.name, namespace=names.SYSTEM_NAMESPACE, spec=spec)
        body["metadata"]["labels"] = {names.MANAGED_LABEL: "true", names.POD_LABEL: names.pod_label(pod.name)}
        body["metadata"]["annotations"] = {
            names.POD_REF: f"{pod.namespace}/{pod.name}",
            names.NODE: pod.allocation.node,
            names.CARD: self.card,
            **({names.CLAIM: claim.name} if claim is not None else {}),
        }
        return body


def planned(pod: LeasedPod, inventory: NodeInventory | None) -> Iterator[PlannedLease]:
    """Iterate over the Leases of a pod's cards; `inventory` says where on its card a MIG instance is."""
    for uuid, share in pod.cards.items():
        instance = _instance(uuid, inventory) if share.parent else ""
        yield PlannedLease(names.device_lease(pod.allocation.node, share.index, instance=instance), uuid, pod)


def _instance(uuid: str, inventory: NodeInventory | None) -> str:
    """Return the part of a Lease's name that identifies a MIG instance of a card: its first slice, else its UUID."""
    cards = inventory.cards if inventory is not None else ()
    known = next((card.instance for card in cards if card.uuid == uuid), None)
    if known is not None and known.slices is not None:
        return str(known.slices.start)
    return "u" + hashlib.sha256(uuid.encode()).hexdigest()[:8]
