"""The tables of `kubectl gpu topology`: a row per node, or the matrix of a node's cards."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from allocation.fabric import Hca
from allocation.mig import MODE
from cli.tables import NOTHING, Table, listed
from cli.topology.node_topology import CardTopology, Connection, FleetTopology, NodeTopology
from cluster.gpu_node_status import HEALTHY

_MOST_COLUMNS: Final = 16
_PODS_SHOWN: Final = 2
_OWN: Final = "X"
_UNKNOWN: Final = "-"


def of_nodes(fleet: FleetTopology) -> Table:
    """Return one row per node."""
    headers = ["NODE", "CARDS", "FREE", "ISLANDS", "GB/S", "NUMA", "RDMA-PORTS", "CUFILE"]
    return Table(headers, [_node(node) for node in fleet.nodes])


def of_cards(node: NodeTopology, *, wide: bool) -> Table:
    """Return one row per card of a node, with a column per card; the wide table has UUID, model and all pods."""
    others = [card.index for card in node.cards if card.mode != MODE]
    columns = others if len(others) <= _MOST_COLUMNS else []
    headers = ["CARD", *map(str, columns), "ISLAND", "GB/S", "NUMA", "HEALTH", "HELD-BY"]
    headers += ["UUID", "MODEL"] if wide else []
    return Table(headers, [_card(card, columns, wide=wide) for card in node.cards])


def text_of(node: NodeTopology, *, wide: bool, headers: bool) -> str:
    """Return the name of a node, the matrix of its cards, and its adapters."""
    lines = [f"{node.name}: {summary(node)}\n", of_cards(node, wide=wide).text(headers=headers, wide=wide)]
    lines += [f"{line}\n" for line in _fabric(node)]
    return "".join(lines)


def summary(node: NodeTopology) -> str:
    """Return what connects the cards of a node, in words."""
    cards = f"{len(node.cards)} {'card' if len(node.cards) == 1 else 'cards'}"
    if not node.islands:
        return f"{cards}, none linked over NVLink"
    speeds = _speeds(node)
    between = f", {_range(speeds)} GB/s between linked cards" if speeds else ""
    parts = " and ".join(
        f"{count} {'island' if count == 1 else 'islands'} of {size}" for size, count in _sizes(node).items()
    )
    return f"{cards}, {parts}{between}"


def _node(node: NodeTopology) -> list[str]:
    numa = {card.numa for card in node.cards if card.numa is not None}
    return [
        node.name,
        str(len(node.cards)),
        str(sum(not card.held_by and card.state == HEALTHY and card.mode != MODE for card in node.cards)),
        ",".join(f"{count}x{size}" for size, count in _sizes(node).items()) or NOTHING,
        _range(_speeds(node)),
        str(len(numa)) if numa else _UNKNOWN,
        str(node.fabric.active_ports),
        "yes" if node.fabric.cu_file.enabled else "no",
    ]


def _card(card: CardTopology, columns: Sequence[int], *, wide: bool) -> list[str]:
    by_card = {each.card: each for each in card.connections}
    cells = [_OWN if other == card.index else _cell(by_card.get(other)) for other in columns]
    row = [
        str(card.index),
        *cells,
        "MIG" if card.mode == MODE else card.island or NOTHING,
        str(card.bandwidth_gbps),
        _UNKNOWN if card.numa is None else str(card.numa),
        card.state,
        listed(card.held_by, shown=None if wide else _PODS_SHOWN),
    ]
    return [*row, card.uuid, card.model or NOTHING] if wide else row


def _cell(connection: Connection | None) -> str:
    if connection is None or connection.way == "Unknown":
        return _UNKNOWN
    if connection.way == "NVLink":
        return str(connection.bandwidth_gbps) if connection.bandwidth_gbps else "NV"
    return connection.way


def _fabric(node: NodeTopology) -> Iterator[str]:
    for hca in node.fabric.hcas:
        yield _hca(hca)
    if node.fabric.cu_file.enabled:
        yield f"GPUDirect Storage {node.fabric.cu_file.version}".rstrip()


def _hca(hca: Hca) -> str:
    rates = [port.rate_gbps for port in hca.ports if port.state == "Active"]
    parts = [
        f"{hca.active_ports} of {len(hca.ports)} ports active",
        *([f"{_range(rates)} Gbit/s"] if rates else []),
        *sorted({port.link_layer for port in hca.ports}),
        *(["GPUDirect RDMA"] if hca.gpu_direct else []),
        *([f"NUMA node {hca.numa}"] if hca.numa >= 0 else []),
    ]
    return f"adapter {hca.name}{f' ({hca.model})' if hca.model else ''}: {', '.join(parts)}"


def _sizes(node: NodeTopology) -> dict[int, int]:
    """Return how many islands there are of each size, the largest first."""
    return dict(sorted(Counter(node.islands.values()).items(), reverse=True))


def _speeds(node: NodeTopology) -> list[int]:
    """Return the reported GB/s of all pairs that are linked."""
    return [each.bandwidth_gbps for card in node.cards for each in card.connections if each.bandwidth_gbps]


def _range(values: Sequence[int]) -> str:
    if not values:
        return "0"
    return str(values[0]) if min(values) == max(values) else f"{min(values)}-{max(values)}"
