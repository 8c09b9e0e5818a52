"""`kubectl gpu top`: the cards of each node and who has shares of them."""

import argparse
import re
from typing import Final, TypeVar

from allocation.request import MILLI_PER_PERCENT
from cli import usage
from cli.errors import CommandError, refused
from cli.objects import Pod
from cli.session import Session
from cli.tables import NOTHING, Table, note, render
from cli.usage import Amount, CardUsage, FleetUsage, NodeUsage
from cluster.errors import ApiError, NotFoundError
from cluster.gpu_node_status import HEALTHY, UNHEALTHY, GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES, PODS, Resource

T = TypeVar("T")

# Only what counts is sent: pods with a node that are not finished.
_LIVE: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
# NVML's UUIDs begin with eight random digits, which is enough to tell the cards of a table apart.
_RANDOM_UUID: Final = re.compile(r"((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f-]{27}")


async def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the cards of every node, or of one."""
    statuses = await _list(session, GPU_NODE_STATUSES, GpuNodeStatus)
    pods = await _list(session, PODS, Pod, fieldSelector=_LIVE)
    fleet = usage.count(statuses, pods)
    for problem in fleet.problems:
        note(problem)
    if arguments.node:
        fleet = _only(fleet, arguments.node)
    elif not fleet.nodes:
        note("no agent reports any cards; see 'kubectl get gpunodestatuses'")
    for node in fleet.nodes:
        if node.closed:
            note(f"node {node.name} takes no GPU pods: {node.closed}")
    text = render(
        fleet,
        table(fleet, wide=arguments.output == "wide"),
        output=arguments.output,
        headers=not arguments.no_headers,
    )
    print(text, end="")
    return 0


def table(fleet: FleetUsage, *, wide: bool = False) -> Table:
    """Answer a line for each card; the wide table has the whole UUID and the model."""
    headers = ["NODE", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)", "SLOTS", "HEALTH", "PODS"]
    if wide:
        headers.insert(3, "MODEL")
    return Table(headers, [_row(node, card, wide=wide) for node in fleet.nodes for card in node.cards])


def _row(node: NodeUsage, card: CardUsage, *, wide: bool) -> list[str]:
    row = [
        node.name,
        str(card.index),
        card.uuid if wide else _RANDOM_UUID.sub(r"\1", card.uuid),
        str(card.memory_mib),
        _percent(card.cores),
        str(card.slots),
        HEALTHY if card.healthy else UNHEALTHY,
        ",".join(str(share) for share in card.shares) or NOTHING,
    ]
    if wide:
        row.insert(3, card.model or NOTHING)
    return row


def _percent(cores: Amount) -> str:
    return f"{cores.used / MILLI_PER_PERCENT:g}/{cores.total / MILLI_PER_PERCENT:g}"


def _only(fleet: FleetUsage, name: str) -> FleetUsage:
    nodes = tuple(node for node in fleet.nodes if node.name == name)
    if not nodes:
        raise CommandError(f"node {name} has no cards that an agent reports; see 'kubectl get gpunodestatuses'")
    return FleetUsage(nodes, fleet.problems)


async def _list(session: Session, resource: Resource, kind: type[T], **selectors: str) -> list[T]:
    asked = f"list {resource.plural} of the whole cluster"
    try:
        return await session.api.list(resource, kind, **selectors)
    except NotFoundError:
        raise CommandError(f"this cluster knows no {resource.plural}; install Tranche's CRDs") from None
    except ApiError as error:
        raise refused(error, asked=asked, grant=asked) from None
