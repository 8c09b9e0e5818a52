"""Which cards of a node reach each other over NVLink.

The links span a graph whose vertices are PCI addresses; an island is a connected component. Cards are joined directly
or over a switch. All switches of a node count as one vertex, because every card of an NVSwitch system is linked to each
of them, and because some drivers do not tell a switch's address.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

SWITCH: Final = "switch"


class Link(msgspec.Struct, frozen=True):
    """An active NVLink of a card.

    Attributes:
        remote: PCI address of the other end, `SWITCH`, or empty where the driver does not tell.
        mb_per_s: its speed in one direction as NVML says it, protocol overhead included.
    """

    remote: str
    mb_per_s: int


def bandwidth_gbps(links: tuple[Link, ...]) -> int:
    """Answer the GB/s (10⁹ bytes) of all links in one direction, rounded down: 18 links of 26562 MB/s are 478."""
    return sum(link.mb_per_s for link in links) // 1000


class Endpoint(msgspec.Struct, frozen=True):
    """A card as a vertex: its index, its PCI address, and its active links."""

    index: int
    address: str
    links: tuple[Link, ...]


def islands(cards: Iterable[Endpoint]) -> dict[int, str]:
    """Answer the island of each card by its index, empty for one without links; it is called after its first card."""
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
