"""Leases of cards for tests: parts as a term composes them, and Leases as the API server would show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocation import names
from allocation.allocation import Allocation, CardShare, ClaimMark, Exclusivity
from allocation.wire.record import encode
from cluster.lease import Lease, LeaseAnnotations, LeaseLabels, LeaseMeta, LeaseSpec
from scheduler.binding.lease_keeper import LeaseKeeper
from scheduler.binding.lease_writes import LeaseWrites
from tests.scheduler.support.builders import pod
from tests.scheduler.support.fencing import fenced

if TYPE_CHECKING:
    from typing import Any

    from cluster.api import Api
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

TOKEN = "1/leader"  # noqa: S105 -- no secret


def keeper(api: Api, state: ClusterState, *, token: str = TOKEN, timeout_seconds: float = 5) -> LeaseKeeper:
    """Return what acquires Leases for the leader with `token`."""
    leases = state.device_leases
    return LeaseKeeper(
        LeaseWrites(fenced(api, token=token, timeout_seconds=timeout_seconds), leases=leases),
        leases=leases,
        inventory_of=state.ledger.inventory,
        on_found=state.set_lease,
    )


def lease_of(
    holder: str, *, node: str = "n1", card: int = 0, uuid: str = "", uid: str = "lease", token: str = TOKEN
) -> Lease:
    """Return the Lease of a card that the pod `holder` of namespace `default` has."""
    return Lease(
        LeaseMeta(
            name=names.device_lease(node, card),
            namespace=names.SYSTEM_NAMESPACE,
            uid=uid,
            resource_version="1",
            labels=LeaseLabels("true"),
            annotations=LeaseAnnotations(token, f"default/{holder}", node, uuid or f"GPU-{node}-{card}"),
        ),
        LeaseSpec(f"uid-{holder}", 60, "2026-01-01T00:00:00.000000Z"),
    )


def allocation(*cards: int, node: str = "n1", exclusivity: Exclusivity = "Exclusive") -> Allocation:
    """Return the allocation of a claim with these cards of a node."""
    shares = tuple(CardShare(f"GPU-{node}-{card}", card, 1000, 1000) for card in cards)
    return Allocation(node, {"main": shares}, ClaimMark("claim", exclusivity))


def claiming(name: str, *cards: int, node: str = "n1", **more: Any) -> Pod:
    """Return a pod that runs with exclusive cards of a node."""
    annotations = {names.ALLOCATION: encode(allocation(*cards, node=node)), names.CLAIM: "claim"}
    return pod(name, memory=1000, node=node, annotations=annotations, **{"phase": "Running", **more})
