"""How the cards of a node are connected. Nodes of one machine type have equal layouts, so they share what is computed.

A layout has the physical, undivided cards only: MIG instances cannot reach each other over NVLink. Its cards are
numbered by their order; these numbers are called bits, because sets of cards are masks of them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

NUMA_UNKNOWN: Final = -1
"""The NUMA node of a card of which it is not known."""

LINKED, SAME_NUMA, CROSS_NUMA, UNKNOWN = range(4)
"""The tiers of a pair of cards: linked directly or through a switch, next to the same CPU, next to different CPUs, or
not known. A lower one is better."""

TopologySource = Literal["auto", "numa"]
"""What tiers are taken from: links first and then NUMA nodes, or NUMA nodes only."""

Matrix = tuple[tuple[int, ...], ...]
"""A value for each pair of cards, by their bits; symmetric."""

_NUMA_SCORES: Final = {SAME_NUMA: 20, CROSS_NUMA: 10, UNKNOWN: 0}
_MOST: Final = (1 << 20) - 1
"""What nodes report is limited to this, so that sums over all pairs of a node are exact in 64 bits."""
_HAMI_LINK: Final = 100
"""HAMi's score of one NVLink; the rest is its score of the way over PCIe (pkg/device/nvidia/calculate_score.go)."""
_HAMI_LINK_GBPS: Final = 25
"""One NVLink of any card since V100 transfers at least this in one direction; HAMi reports only how many there are."""


class PeerLink(msgspec.Struct, frozen=True, rename={"bandwidth_gbps": "bandwidthGBps"}):
    """The links between a card and one other, point to point.

    Attributes:
        id: the index of the other card.
        bandwidth_gbps: GB/s of all active links between both in one direction, rounded down.
    """

    id: int
    bandwidth_gbps: int


class CardLinks(msgspec.Struct, frozen=True):
    """What is known of the connections of one card.

    Attributes:
        index: NVML's index.
        numa: its NUMA node, or `NUMA_UNKNOWN`.
        island: cards with the same, non-empty island reach each other over NVLink.
        bandwidth_gbps: GB/s of its active NVLinks in one direction.
        peers: its links where they are point to point; empty for a card without links, or behind switches.
        pcie: the lowest index among the cards with which it shares its NUMA node, its host bridge, its PCIe switches,
            and its PCIe switch, in this order; empty if unknown.
    """

    index: int
    numa: int = NUMA_UNKNOWN
    island: str = ""
    bandwidth_gbps: int = 0
    peers: tuple[PeerLink, ...] = ()
    pcie: tuple[int, ...] = ()


class Layout(msgspec.Struct, frozen=True, cache_hash=True):
    """The connections of a node's cards; every tuple is by bit.

    Attributes:
        ids: NVML's index of each card, ascending.
        islands: the number of each card's NVLink island; a card without one is an island by itself.
        numa: the NUMA node of each card, or `NUMA_UNKNOWN`.
        bandwidth: GB/s of each pair in one direction, 0 for a pair that is not linked; of a card with itself, its own.
        tiers: the tier of each pair; of a card with itself `LINKED`.
        numa_tiers: the same without links.
        scores: HAMi's score of each pair, or one with the same meaning; higher is better, 0 of a card with itself.
    """

    ids: tuple[int, ...]
    islands: tuple[int, ...]
    numa: tuple[int, ...]
    bandwidth: Matrix
    tiers: Matrix
    numa_tiers: Matrix
    scores: Matrix

    def __len__(self) -> int:
        """Return the number of cards."""
        return len(self.ids)

    def tiers_of(self, source: TopologySource) -> Matrix:
        """Return the tier of each pair according to one source."""
        return self.numa_tiers if source == "numa" else self.tiers


@lru_cache(maxsize=128)
def of_links(cards: tuple[CardLinks, ...]) -> Layout:
    """Return the layout of cards, which must be in the order of their indexes.

    Cards with links to single peers are linked to these only; the other cards of an island are linked through switches,
    at the smaller bandwidth of both. Links that only one of both cards reports do not count.
    """
    peers = [{peer.id: _limited(peer.bandwidth_gbps) for peer in card.peers} for card in cards]
    own = [_limited(card.bandwidth_gbps) for card in cards]

    def bandwidth(one: int, other: int) -> tuple[int, bool]:
        first, second = cards[one], cards[other]
        if first.peers or second.peers:
            both = (peers[one].get(second.index), peers[other].get(first.index))
            return (0, False) if None in both else (min(amount or 0 for amount in both), True)
        is_linked = bool(first.island) and first.island == second.island
        return min(own[one], own[other]) if is_linked else 0, is_linked

    every = range(len(cards))
    pairs = [[bandwidth(one, other) for other in every] for one in every]
    numa_tiers = _matrix(len(cards), lambda one, other: _numa_tier(cards[one], cards[other]), own=LINKED)
    tiers = _matrix(
        len(cards), lambda one, other: LINKED if pairs[one][other][1] else numa_tiers[one][other], own=LINKED
    )
    return Layout(
        ids=tuple(_limited(card.index) for card in cards),
        islands=_numbered([card.island or index for index, card in enumerate(cards)]),
        numa=tuple(card.numa for card in cards),
        bandwidth=tuple(tuple(own[one] if one == other else pairs[one][other][0] for other in every) for one in every),
        tiers=tiers,
        numa_tiers=numa_tiers,
        # A GB/s counts as a quarter of HAMi's 100 for a link of 25 GB/s; NUMA nodes decide between equal links.
        scores=_matrix(
            len(cards), lambda one, other: 4 * pairs[one][other][0] + _NUMA_SCORES.get(numa_tiers[one][other], 0)
        ),
    )


def of_scores(cards: Sequence[tuple[str, int, int]], scores: Mapping[str, Mapping[str, int]]) -> Layout:
    """Return the layout of `cards`, given as UUID, index and NUMA node, from HAMi's scores of their pairs.

    Of two scores of a pair the lower one counts, so a pair with one score, or none, is not linked.
    """

    def reported(one: int, other: int) -> int:
        return scores.get(cards[one][0], {}).get(cards[other][0], 0)

    def score(one: int, other: int) -> int:
        return _limited(min(reported(one, other), reported(other, one)))

    def peers(one: int) -> tuple[PeerLink, ...]:
        links = {other: score(one, other) // _HAMI_LINK for other in range(len(cards)) if other != one}
        return tuple(PeerLink(cards[other][1], count * _HAMI_LINK_GBPS) for other, count in links.items() if count)

    peers_of = [peers(one) for one in range(len(cards))]
    island = _components([[peer.id for peer in each] for each in peers_of], [index for _, index, _ in cards])
    built = of_links(
        tuple(
            CardLinks(index, numa, island[place], widest(peers_of[place]), peers_of[place])
            for place, (_, index, numa) in enumerate(cards)
        )
    )
    return msgspec.structs.replace(built, scores=_matrix(len(cards), score))


def widest(peers: Sequence[PeerLink]) -> int:
    """Return the bandwidth of the best of a card's links to single peers, which a set of two cards would have."""
    return max((peer.bandwidth_gbps for peer in peers), default=0)


def _limited(value: int) -> int:
    return min(max(value, 0), _MOST)


def _numa_tier(one: CardLinks, other: CardLinks) -> int:
    if NUMA_UNKNOWN not in (one.numa, other.numa):
        return SAME_NUMA if one.numa == other.numa else CROSS_NUMA
    if one.pcie and other.pcie:
        return SAME_NUMA if one.pcie[0] == other.pcie[0] else CROSS_NUMA
    return UNKNOWN


def _components(neighbours: Sequence[Sequence[int]], indexes: Sequence[int]) -> list[str]:
    """Return the island of each card: the cards that it reaches over links of others; empty for a card without."""
    place_of = {index: place for place, index in enumerate(indexes)}
    island = [""] * len(indexes)
    for start, first in enumerate(indexes):
        reached = [start] if neighbours[start] and not island[start] else []
        while reached:
            place = reached.pop()
            if not island[place]:
                island[place] = f"nvlink-{first}"
                reached += [place_of[index] for index in neighbours[place]]
    return island


def _numbered(names: Sequence[Hashable]) -> tuple[int, ...]:
    """Return equal numbers for equal names, counted in the order of their first occurrence."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def _matrix(count: int, value: Callable[[int, int], int], *, own: int = 0) -> Matrix:
    """Return `value` of each pair of two cards, and `own` of each card with itself."""
    return tuple(tuple(own if one == other else value(one, other) for other in range(count)) for one in range(count))
