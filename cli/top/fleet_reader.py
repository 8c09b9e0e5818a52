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
from cluster.lease import Lease
from cluster.resource import LEASES, NODES, PODS, Resource

T = TypeVar("T")


def read(session: Session) -> FleetObjects:
    """Read the objects; without the right to read nodes or Leases, read the rest.

    Raises:
        MissingRightError: the reports of agents, or pods, may not be read.
    """
    client = session.client
    return FleetObjects(
        statuses=gpu_node_statuses(client),
        pods=client.list(PODS, Pod, field_selector=LIVE),
        nodes=_if_allowed(session, NODES, NodeMetadata, "cordoned cards and nodes with HAMi's plugin are not shown"),
        leases=_if_allowed(session, LEASES, Lease, "the state of agents is not shown", namespace=SYSTEM_NAMESPACE),
        now=time.time() + client.clock_ahead,
    )


def _if_allowed(
    session: Session, resource: Resource, kind: type[T], otherwise: str, *, namespace: str = ""
) -> list[T] | None:
    try:
        return session.client.list(resource, kind, namespace=namespace, metadata_only=resource is NODES)
    except MissingRightError as error:
        note(f"{otherwise}: {error}")
        return None
