"""The order of sets of cards: which of two sets of one node suits a demand better, and which are not acceptable.

| policy | what decides, in this order |
|---|---|
| contiguous | one island, a lower tier, consecutive indexes, a higher bandwidth, a smaller span of indexes |
| spread | more islands, more NUMA nodes, a larger sum of the distances of indexes, a higher bandwidth |
| preferIds | more preferred cards, then as contiguous |
| linked | a higher sum of scores over all pairs |

Before all that comes, except for `linked`, whether the set has the demanded bandwidth and then the demanded tier. A
single card comes from the smallest island, so that large ones stay whole, and then has the highest bandwidth. In mode
Ignore only the indexes of cards count.

The bandwidth of a set is that of its slowest pair, its tier that of its worst pair; a card alone has its own bandwidth.
In mode Required a set must have the demanded bandwidth and tier; with contiguous and without a demanded tier it must
lie in one island; with preferIds it may have preferred cards only.

Of sets that are equal in this order, the one is chosen that leaves the fewest free cards over in its islands, if
islands count for the demand (not for `linked`, nor in mode Ignore), then the first in the lexicographic order of the
cards that the policy of the pod prefers. HAMi's rule for a single card is in `least_linked`.
"""

from collections.abc import Sequence
from itertools import combinations

from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import LINKED, UNKNOWN, Layout

Key = tuple[int, ...]
"""Of two sets of equal size, the one with the lower key is better."""


def bandwidth(layout: Layout, members: Sequence[int]) -> int:
    """Return GB/s of the slowest pair of a set, or of its only card; `members` are bits."""
    if len(members) == 1:
        return layout.bandwidth[members[0]][members[0]]
    return min(layout.bandwidth[one][other] for one, other in combinations(members, 2))


def tier(layout: Layout, members: Sequence[int], demand: TopologyDemand) -> int:
    """Return the tier of the worst pair of a set."""
    tiers = layout.tiers_of(demand.source)
    return max((tiers[one][other] for one, other in combinations(members, 2)), default=LINKED)


def is_acceptable(layout: Layout, members: Sequence[int], demand: TopologyDemand) -> bool:
    """Whether a demand that is required accepts a set; every other demand accepts all."""
    if not demand.is_required:
        return True
    worst = tier(layout, members, demand)
    if bandwidth(layout, members) < demand.min_bandwidth_gbps:
        return False
    if worst == UNKNOWN and not demand.accepts_unknown:
        return False
    if demand.max_tier is not None and worst > demand.max_tier:
        return False
    if demand.policy == "preferIds":
        return all(layout.ids[member] in demand.prefer_ids for member in members)
    needs_island = demand.policy == "contiguous" and demand.max_tier is None
    return not needs_island or len({layout.islands[member] for member in members}) == 1


def key(layout: Layout, members: Sequence[int], demand: TopologyDemand) -> Key:
    """Return the place of a set, whose `members` are ascending bits, in the order of a demand."""
    if demand.policy == "linked":
        return (-sum(layout.scores[one][other] for one, other in combinations(members, 2)),)
    span = layout.ids[members[-1]] - layout.ids[members[0]]
    preferred = -sum(layout.ids[member] in demand.prefer_ids for member in members)
    distance = -sum(abs(layout.ids[one] - layout.ids[other]) for one, other in combinations(members, 2))
    if demand.mode == "Ignore":
        return {"contiguous": (span,), "spread": (distance,), "preferIds": (preferred, span)}[demand.policy]
    speed, worst = bandwidth(layout, members), tier(layout, members, demand)
    is_slow = speed < demand.min_bandwidth_gbps
    is_far = demand.max_tier is not None and worst > demand.max_tier
    islands = {layout.islands[member] for member in members}
    if len(members) == 1:
        contiguous: Key = (layout.islands.count(*islands), -speed)
        spread = contiguous
    else:
        contiguous = (len(islands) > 1, worst, span > len(members) - 1, -speed, span)
        spread = (-len(islands), -len({layout.numa[member] for member in members}), distance, -speed)
    own: Key = {"contiguous": contiguous, "spread": spread, "preferIds": (preferred, *contiguous)}[demand.policy]
    return (is_slow, is_far, *own)


def least_linked(layout: Layout, preference: Sequence[int]) -> int:
    """Return the free card that `linked` chooses for a pod with one card, as HAMi's topology-aware policy does.

    It has the lowest sum of scores to the other free cards, so that sets with good links stay whole. `preference` has
    the free bits; the first of equal ones is chosen.
    """
    return min(preference, key=lambda card: sum(layout.scores[card][other] for other in preference))
