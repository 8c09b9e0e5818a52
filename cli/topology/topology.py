"""`kubectl gpu topology`: how the cards of nodes are connected, and which pods have them."""

import argparse

from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import HAMI_REGISTER, HAMI_SCORES
from allocation.wire import hami
from cli import settings
from cli.errors import CommandError
from cli.kube.session import Session
from cli.tables import note, render
from cli.top import fleet_reader, usage_counter
from cli.top.usage_counter import FleetObjects
from cli.topology import drawing
from cli.topology.node_topology import FleetTopology, NodeTopology, island_names, node_topology, pcie_groups
from cluster.resource import GPU_NODE_STATUSES


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the topology of the named nodes, or a row for each node."""
    objects = fleet_reader.read(session)
    fleet = of_objects(objects, config=arguments.config)
    if arguments.nodes:
        fleet = named(fleet, arguments.nodes)
    elif not fleet.nodes:
        note("no node of this cluster reports cards; see 'kubectl get gns'")
    if arguments.output == "name":
        print("".join(f"gpunodestatus.{GPU_NODE_STATUSES.group}/{node.name}\n" for node in fleet.nodes), end="")
        return 0
    headers = not arguments.no_headers
    if arguments.nodes and arguments.output in ("table", "wide"):
        wide = arguments.output == "wide"
        print("\n".join(drawing.text_of(node, wide=wide, headers=headers) for node in fleet.nodes), end="")
    else:
        print(render(fleet, drawing.of_nodes(fleet), output=arguments.output, headers=headers), end="")
    return 0


def of_objects(objects: FleetObjects, *, config: str = "") -> FleetTopology:
    """Return the topology of every node whose cards are counted."""
    usages = {node.name: node for node in usage_counter.count(objects, settings.allocation(config)).nodes}
    statuses = {status.metadata.name: status for status in objects.statuses}
    inventories = _registered(objects) | {
        name: status.inventory() for name, status in statuses.items() if status.status is not None
    }
    nodes: list[NodeTopology] = []
    for name, usage in usages.items():
        if name in inventories and usage.cards:
            status = statuses.get(name)
            nodes.append(
                node_topology(inventories[name], usage, pcie=pcie_groups(status), islands=island_names(status))
            )
    return FleetTopology(tuple(nodes))


def _registered(objects: FleetObjects) -> dict[str, NodeInventory]:
    """Return the cards of nodes with a register annotation; `top` names those that cannot be read."""
    inventories = {}
    for node in objects.nodes or ():
        annotations = node.metadata.annotations
        if HAMI_REGISTER in annotations:
            try:
                inventories[node.metadata.name] = hami.decode_register(
                    node.metadata.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, "")
                )
            except AllocationError:
                continue
    return inventories


def named(fleet: FleetTopology, names: list[str]) -> FleetTopology:
    """Return the named nodes in this order.

    Raises:
        CommandError: one of them has no cards.
    """
    by_name = {node.name: node for node in fleet.nodes}
    for name in names:
        if name not in by_name:
            raise CommandError(
                f"node {name} has no cards that can be counted; 'kubectl gpu top' shows why, or that none is reported"
            )
    return FleetTopology(tuple(by_name[name] for name in dict.fromkeys(names)))
