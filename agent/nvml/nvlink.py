"""How the cards of a node are linked over NVLink: the pairs with links of their own, and islands.

An island is a group of cards that reach each other: a connected component of the graph whose vertices are PCI
addresses and whose edges are links. Links join cards directly or through a switch. All switches of a node count as one
vertex, because every card of an NVSwitch system is linked to each of them, and because some drivers do not report a
switch's address.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from allocation.topology.layout import PeerLink

SWITCH: Final = "switch"


class Link(msgspec.Struct, frozen=True):
    """An active NVLink of a card.

    Attributes:
        remote: PCI address of the other end, `SWITCH`, or empty if the driver does not report it.
        mb_per_s: its speed in one direction as NVML reports it, including protocol overhead.
    """

    remote: str
    mb_per_s: int


def bandwidth_gbps(links: Iterable[Link]) -> int:
    """Return the sum of all links in one direction in GB/s (10⁹ bytes), rounded down: 478 for 18 of 26562 MB/s."""
    return sum(link.mb_per_s for link in links) // 1000


class Endpoint(msgspec.Struct, frozen=True):
    """A card as a vertex: its index, its PCI address, and its active links."""

    index: int
    address: str
    links: tuple[Link, ...]


def islands(cards: Iterable[Endpoint]) -> dict[int, str]:
    """Return the island of each card by index, named after its first card; empty for a card without links."""
    leader: dict[str, str] = {}

    def find(vertex: str) -> str:
        while leader.setdefault(vertex, vertex) != vertex:
            vertex = leader[vertex]
        return vertex

    ordered = sorted(cards, key=lambda card: card.index)
    for card in ordered:
        for link in card.links:
            if link.remote:
                leader[find(card.address)] = find(link.remote)
    names: dict[str, str] = {}
    return {
        card.index: names.setdefault(find(card.address), f"nvlink-{card.index}") if card.links else ""
        for card in ordered
    }


def peers(cards: Iterable[Endpoint]) -> dict[int, tuple[PeerLink, ...]]:
    """Return by index what links each card to which other cards point to point, in the order of their indexes."""
    ordered = sorted(cards, key=lambda card: card.index)
    return {
        card.index: tuple(
            PeerLink(other.index, bandwidth_gbps(link for link in card.links if link.remote == other.address))
            for other in ordered
            if any(link.remote == other.address for link in card.links)
        )
        for card in ordered
    }
