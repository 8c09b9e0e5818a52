"""`kubectl gpu top`: what is reserved of nodes and cards, and who has shares of them."""

import argparse
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from allocation.names import SYSTEM_NAMESPACE
from cli import counting, settings, top_tables
from cli.counting import Seen
from cli.errors import CommandError, MissingRightError
from cli.objects import LIVE, NodeMetadata, Pod
from cli.session import Session
from cli.tables import note, render
from cli.usage import CONDITIONS_OF_CARDS, FleetUsage
from cluster.errors import NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES, PODS, Resource
from scheduler.heartbeats import Lease

T = TypeVar("T")

_NOTES: Final = 5
_KIND: Final = ("nodes", "node")


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the fleet, or some nodes of it, once or at each change."""
    rules = settings.allocation(arguments.config, prog="kubectl gpu top")
    seen = _look(session)
    fleet = _chosen(counting.count(seen, rules), arguments)
    names = {node.name for node in fleet.nodes}
    for name in _names(arguments):
        if name not in names:
            raise CommandError(
                f"node {name} has no cards that an agent or an annotation reports; see 'kubectl gpu top'"
            )
    _notes(fleet, seen, arguments)
    text = _text(fleet, arguments)
    print(text, end="", flush=True)
    if not arguments.watch:
        return 0
    from cli import top_watch  # noqa: PLC0415 -- watching takes the client of processes that stay, which loads slowly

    return top_watch.run(
        session,
        first=seen,
        shown=text,
        show=lambda later: _text(_chosen(counting.count(later, rules), arguments), arguments),
    )


def _look(session: Session) -> Seen:
    """Read what there is; who may not read nodes or Leases sees the rest."""
    client = session.client
    try:
        statuses = client.list(GPU_NODE_STATUSES, GpuNodeStatus)
    except NotFoundError:
        raise CommandError(
            f"this cluster knows no {GPU_NODE_STATUSES.plural}: Tranche is not installed here; apply manifests/base, "
            "or choose another --context"
        ) from None
    return Seen(
        statuses=statuses,
        pods=client.list(PODS, Pod, field_selector=LIVE),
        nodes=_if_allowed(session, NODES, NodeMetadata, "cordoned cards and nodes with HAMi's plugin are not shown"),
        leases=_if_allowed(session, LEASES, Lease, "whether agents live is not shown", namespace=SYSTEM_NAMESPACE),
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


def _names(arguments: argparse.Namespace) -> Sequence[str]:
    """Answer the nodes that are named, without the word for what they are."""
    named: list[str] = arguments.nodes
    return named[1:] if named and named[0] in _KIND else named


def _chosen(fleet: FleetUsage, arguments: argparse.Namespace) -> FleetUsage:
    names = _names(arguments)
    if names:
        fleet = FleetUsage(tuple(node for node in fleet.nodes if node.name in names))
    if arguments.namespace and not arguments.all_namespaces:
        fleet = fleet.of_namespace(arguments.namespace)
    return fleet


def _text(fleet: FleetUsage, arguments: argparse.Namespace) -> str:
    if arguments.output == "name":
        return "".join(f"gpunodestatus.{GPU_NODE_STATUSES.group}/{node.name}\n" for node in fleet.nodes)
    table = top_tables.of_cards if arguments.cards or _names(arguments) else top_tables.of_nodes
    return render(
        fleet,
        table(fleet, wide=arguments.output == "wide"),
        output=arguments.output,
        headers=not arguments.no_headers,
    )


def _notes(fleet: FleetUsage, seen: Seen, arguments: argparse.Namespace) -> None:
    """Say what a table has no room for: why nodes take no pods. The structured forms have it in themselves."""
    if not fleet.nodes:
        where = f" of which namespace {arguments.namespace} has shares" if arguments.namespace else ""
        reported = "there are none in this cluster" if not any(True for _ in seen.statuses) else "see 'kubectl get gns'"
        note(f"no cards{where}; {reported}")
    if arguments.output not in ("table", "wide"):
        return
    told = [
        condition.message
        for node in fleet.nodes
        for condition in node.conditions
        if condition.type not in CONDITIONS_OF_CARDS
    ]
    for message in told[:_NOTES]:
        note(message)
    if len(told) > _NOTES:
        note(f"and {len(told) - _NOTES} more; all of them are in -o json")
