"""Reads what is counted of a fleet: the reports of agents, nodes, Leases, and the pods with shares."""

import time
from typing import TypeVar

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.kube.objects import LIVE, NodeMetadata, Pod
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import note
from cli.top.usage_counter import FleetObjects
from cluster.dra import ResourceClaim, ResourceSlice
from cluster.errors import NotFoundError
from cluster.lease import Lease
from cluster.resource import LEASES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource

T = TypeVar("T")


def read(session: Session, *, with_claims: bool = False) -> FleetObjects:
    """Read the objects, and those of DRA `with_claims`; without the right to read nodes, Leases or these, the rest.

    Raises:
        MissingRightError: the reports of agents, or pods, may not be read.
    """
    client = session.client
    slices, claims = _of_dra(session) if with_claims else (None, None)
    return FleetObjects(
        statuses=gpu_node_statuses(client),
        pods=client.list(PODS, Pod, field_selector=LIVE),
        nodes=_if_allowed(session, NODES, NodeMetadata, "cordoned cards and nodes with HAMi's plugin are not shown"),
        leases=_if_allowed(session, LEASES, Lease, "the state of agents is not shown", namespace=SYSTEM_NAMESPACE),
        now=time.time() + client.clock_ahead,
        slices=slices,
        claims=claims,
    )


def _of_dra(session: Session) -> tuple[list[ResourceSlice] | None, list[ResourceClaim] | None]:
    """Return what says which cards other DRA drivers have allocated; clusters before 1.34 do not know the kinds."""
    otherwise = "cards that ResourceClaims have, too, are not marked"
    try:
        slices = _if_allowed(session, RESOURCE_SLICES, ResourceSlice, otherwise)
        return slices, None if slices is None else _if_allowed(session, RESOURCE_CLAIMS, ResourceClaim, otherwise)
    except NotFoundError:
        return None, None


def _if_allowed(
    session: Session, resource: Resource, kind: type[T], otherwise: str, *, namespace: str = ""
) -> list[T] | None:
    try:
        return session.client.list(resource, kind, namespace=namespace, metadata_only=resource is NODES)
    except MissingRightError as error:
        note(f"{otherwise}: {error}")
        return None
