"""How good a set of cards is, and the best set that its node would have if no pod held any card.

Nothing is decided here: the order of sets is that of `allocation.topology.order`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from allocation.topology import order
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import Layout
from allocation.topology.subsets import bits_of
from allocation.topology.tables import TopologyTables


class SetQuality(msgspec.Struct, frozen=True):
    """A set of cards of one node.

    Attributes:
        ids: NVML's indexes of the cards, ascending.
        bandwidth_gbps: GB/s of the slowest pair in one direction, or of the only card.
        tier: the tier of the worst pair, from the demand's source.
        islands: how many NVLink islands the set touches.
        island_cards: how many cards of the node these islands have.
    """

    ids: tuple[int, ...]
    bandwidth_gbps: int
    tier: int
    islands: int
    island_cards: int


class Comparison(msgspec.Struct, frozen=True):
    """The set that a container has or would have on a node, and a better one.

    Attributes:
        chosen: the set; None if the node has no acceptable set of free cards.
        better: the best acceptable set if no pod held any card; None if `chosen` is as good, or no set is acceptable.
            Of equal sets, it is one of which many cards are free.
        missing: the indexes of the cards of `better` that are not free, ascending.
        nearest: where no set is acceptable, the best set of usable cards all the same; None if there are too few cards.
    """

    chosen: SetQuality | None
    better: SetQuality | None
    missing: tuple[int, ...] = ()
    nearest: SetQuality | None = None


def quality(layout: Layout, members: Sequence[int], demand: TopologyDemand) -> SetQuality:
    """Return how good a set is for a demand; `members` are ascending bits."""
    islands = {layout.islands[member] for member in members}
    return SetQuality(
        ids=tuple(layout.ids[member] for member in members),
        bandwidth_gbps=order.bandwidth(layout, members),
        tier=order.tier(layout, members, demand),
        islands=len(islands),
        island_cards=sum(island in islands for island in layout.islands),
    )


def compare(
    tables: TopologyTables,
    layout: int,
    demand: TopologyDemand,
    count: int,
    *,
    chosen: Sequence[int],
    free: int,
    usable: Iterable[int],
) -> Comparison:
    """Compare a set with the best set of `count` usable cards.

    Args:
        tables: has the layouts.
        layout: the number of the node's layout.
        demand: what the container demands.
        count: how many cards it asks for.
        chosen: the ascending bits of its set; empty if the node has no acceptable set of free cards.
        free: the mask of the cards that the container could have now.
        usable: masks of the cards that it could have if no pod held any; a set lies within one of them.
    """
    shape, usable = tables.layouts[layout], tuple(usable)
    sets: list[tuple[int, ...]] = []
    for mask in usable:
        preference = _free_first(shape, mask, free)
        for within in (mask & free, mask):  # of equally good sets, one that is free comes first
            preferred = [bit for bit in preference if within >> bit & 1]
            sets.append(tables.choose(layout, within, count, demand, preference=preferred))
    different = dict.fromkeys(each for each in sets if each)
    best = min(different, key=lambda each: order.key(shape, each, demand), default=())
    own = quality(shape, chosen, demand) if chosen else None
    if not best and own is None:
        return Comparison(None, None, nearest=_nearest(tables, layout, demand, count, usable))
    if not best or (chosen and order.key(shape, chosen, demand) <= order.key(shape, best, demand)):
        return Comparison(own, None)
    missing = tuple(shape.ids[bit] for bit in best if not free >> bit & 1)
    return Comparison(own, quality(shape, best, demand), missing)


def _nearest(
    tables: TopologyTables, layout: int, demand: TopologyDemand, count: int, usable: Iterable[int]
) -> SetQuality | None:
    """Return the best set of `count` usable cards for a demand that rejects none."""
    shape, relaxed = tables.layouts[layout], msgspec.structs.replace(demand, mode="Preferred", min_bandwidth_gbps=0)
    sets = (tables.choose(layout, mask, count, relaxed, preference=bits_of(mask)) for mask in usable)
    best = min((each for each in sets if each), key=lambda each: order.key(shape, each, relaxed), default=())
    return quality(shape, best, demand) if best else None


def _free_first(layout: Layout, mask: int, free: int) -> list[int]:
    """Return the bits of a mask: the free ones first, and those of the island with most free cards first."""
    in_island = Counter(layout.islands[bit] for bit in bits_of(mask & free))
    return sorted(bits_of(mask), key=lambda bit: (not free >> bit & 1, -in_island[layout.islands[bit]], bit))
