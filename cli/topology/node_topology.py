"""The output of `kubectl gpu topology`: the cards of each node, how they are connected, and its adapters."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from allocation.fabric import NO_FABRIC, Fabric
from allocation.inventory import Card, NodeInventory
from allocation.topology.layout import CROSS_NUMA, LINKED, NUMA_UNKNOWN, SAME_NUMA, Layout
from cli.top.usage import CardUsage, NodeUsage
from cluster.gpu_node_status import GpuNodeStatus

Way = Literal["NVLink", "PIX", "PXB", "PHB", "NODE", "SYS", "Unknown"]
"""How two cards reach each other; NVIDIA's words, as `nvidia-smi topo` has them."""

_BY_LEVEL: Final[tuple[Way, ...]] = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""By how many PCIe groups both cards have in common, from the widest."""


class Connection(msgspec.Struct, frozen=True, rename={"bandwidth_gbps": "bandwidthGBps"}):
    """How a card reaches another one.

    Attributes:
        card: the index of the other card.
        way: the best way.
        bandwidth_gbps: GB/s over NVLink in one direction; 0 if there is no link, or it is not reported.
    """

    card: int
    way: Way
    bandwidth_gbps: int = 0


class CardTopology(msgspec.Struct, frozen=True, rename={"bandwidth_gbps": "bandwidthGBps", "held_by": "heldBy"}):
    """One card.

    Attributes:
        mode: `mig` for a card in MIG mode, which has no connections.
        state: health and cordon.
        island: the name of its NVLink island; empty without links.
        numa: its NUMA node; None if unknown.
        bandwidth_gbps: GB/s of all its NVLinks in one direction.
        held_by: the pods that have a share of it or of its instances, `namespace/name`.
        connections: to each other card of the node that is not in MIG mode, by index.
    """

    index: int
    uuid: str
    model: str
    mode: str
    state: str
    island: str
    numa: int | None
    bandwidth_gbps: int
    held_by: tuple[str, ...]
    connections: tuple[Connection, ...]


class NodeTopology(msgspec.Struct, frozen=True):
    """One node.

    Attributes:
        cards: by index, without MIG instances.
        fabric: its network adapters and GPUDirect Storage.
    """

    name: str
    cards: tuple[CardTopology, ...]
    fabric: Fabric = NO_FABRIC

    @property
    def islands(self) -> Mapping[str, int]:
        """How many cards each NVLink island has."""
        return Counter(card.island for card in self.cards if card.island)


class FleetTopology(msgspec.Struct, frozen=True):
    """The output with `-o json`: nodes sorted by name."""

    nodes: tuple[NodeTopology, ...]


def node_topology(
    inventory: NodeInventory, usage: NodeUsage, *, pcie: Mapping[str, Sequence[int]], islands: Mapping[str, str]
) -> NodeTopology:
    """Return the topology of a node; `pcie` and `islands` have the PCIe groups and the island of cards by UUID."""
    layout = inventory.layout
    undivided = [card for card in inventory.cards if card.is_undivided]
    used = {card.uuid: card for card in usage.cards}
    cards = []
    for card in inventory.cards:
        if card.instance is not None:
            continue
        bit = undivided.index(card) if card in undivided else None
        cards.append(
            CardTopology(
                index=card.index,
                uuid=card.uuid,
                model=card.model,
                mode=card.mode,
                state=used[card.uuid].state,
                island=_island(layout, bit, islands.get(card.uuid, "")),
                numa=None if card.numa == NUMA_UNKNOWN else card.numa,
                bandwidth_gbps=layout.bandwidth[bit][bit] if bit is not None else 0,
                held_by=_held_by(card, inventory, used),
                connections=tuple(_connections(layout, bit, undivided, pcie)) if bit is not None else (),
            )
        )
    return NodeTopology(inventory.node, tuple(cards), inventory.fabric)


def pcie_groups(status: GpuNodeStatus | None) -> dict[str, Sequence[int]]:
    """Return the PCIe groups of the cards that an agent reports, by UUID."""
    devices = status.status.devices if status is not None and status.status is not None else []
    return {each.uuid: each.pcie_groups for each in devices if each.pcie_groups is not msgspec.UNSET}


def island_names(status: GpuNodeStatus | None) -> dict[str, str]:
    """Return the islands that an agent reports, by the UUIDs of their cards."""
    devices = status.status.devices if status is not None and status.status is not None else []
    return {each.uuid: each.island for each in devices}


def _island(layout: Layout, bit: int | None, reported: str) -> str:
    """Return the name of a card's island: the agent's, or else one by its first card; empty for a card alone."""
    if bit is None or layout.islands.count(layout.islands[bit]) == 1:
        return ""
    return reported or f"nvlink-{layout.ids[layout.islands.index(layout.islands[bit])]}"


def _held_by(card: Card, inventory: NodeInventory, used: Mapping[str, CardUsage]) -> tuple[str, ...]:
    own = [card.uuid, *(each.uuid for each in inventory.cards if each.parent == card.uuid)]
    shares = (share for uuid in own for share in used[uuid].shares)
    return tuple(sorted({f"{share.namespace}/{share.pod}" for share in shares}))


def _connections(
    layout: Layout, bit: int, undivided: Sequence[Card], pcie: Mapping[str, Sequence[int]]
) -> Iterable[Connection]:
    for other, card in enumerate(undivided):
        if other == bit:
            continue
        if layout.tiers[bit][other] == LINKED:
            yield Connection(card.index, "NVLink", layout.bandwidth[bit][other])
        else:
            own, its = pcie.get(undivided[bit].uuid, ()), pcie.get(card.uuid, ())
            yield Connection(card.index, _way(layout.numa_tiers[bit][other], own, its))


def _way(tier: int, own: Sequence[int], its: Sequence[int]) -> Way:
    """Return the way over PCIe by the groups of both cards, or else by their NUMA nodes."""
    if own and its:
        common = 0
        for one, other in zip(own, its, strict=False):
            if one != other:
                break
            common += 1
        return _BY_LEVEL[min(common, len(_BY_LEVEL) - 1)]
    ways: dict[int, Way] = {SAME_NUMA: "NODE", CROSS_NUMA: "SYS"}
    return ways.get(tier, "Unknown")
