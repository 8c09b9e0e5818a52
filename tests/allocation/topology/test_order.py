"""Which set of cards is better, and which is acceptable: the vectors of the systems that the rules come from."""

import pytest

from allocation.topology import order
from allocation.topology.demand import DevicePolicy, TopologyDemand
from allocation.topology.layout import (
    CROSS_NUMA,
    LINKED,
    SAME_NUMA,
    UNKNOWN,
    CardLinks,
    Layout,
    TopologySource,
    of_links,
    of_scores,
)
from tests.allocation.support.layouts import best_set

EXAMPLE = of_links(
    tuple(CardLinks(index, index // 4, f"nvlink-{index // 4}", 64 if index // 4 else 600) for index in range(8))
)
"""The node of ziwon's documentation: 0-3 at 600 GB/s, 4-7 at 64."""
UNLINKED = of_links(tuple(CardLinks(index, numa) for index, numa in enumerate((0, 0, 1, 1, -1))))
"""Two cards next to each of two CPUs, and one of which it is not known."""


def chosen(layout: Layout, free: str, count: int, demand: TopologyDemand) -> str:
    """Return the indexes of the chosen set; `free` has one digit for each card, the preferred ones first."""
    return "".join(map(str, best_set(layout, count, demand, [int(digit) for digit in free])))


@pytest.mark.parametrize(
    ("free", "count", "demand", "expected"),
    [
        # 4 contiguous at 600: the fast island; 7 is unhealthy in the documentation.
        ("0123456", 4, TopologyDemand(mode="Required", min_bandwidth_gbps=600), "0123"),
        ("0123456", 4, TopologyDemand(mode="Preferred", min_bandwidth_gbps=600), "0123"),
        # 0 in use: no set of 4 has 600, and Required rejects, but Preferred is placed.
        ("123456", 4, TopologyDemand(mode="Required", min_bandwidth_gbps=600), ""),
        ("123456", 4, TopologyDemand(mode="Preferred", min_bandwidth_gbps=600), "1234"),
        ("123456", 3, TopologyDemand(mode="Required", min_bandwidth_gbps=600), "123"),
        # Required and contiguous without a bandwidth: one island is enough, but necessary.
        ("01234567", 4, TopologyDemand(mode="Required"), "0123"),
        ("1234567", 4, TopologyDemand(mode="Required"), "4567"),
        ("01234567", 5, TopologyDemand(mode="Required"), ""),
        ("01234567", 5, TopologyDemand(mode="Required", max_tier=CROSS_NUMA), "01234"),
        # Consecutive indexes come before those with a gap, and the fewest cards left over decide between equal sets.
        ("0134567", 2, TopologyDemand(), "01"),
        ("024567", 2, TopologyDemand(), "45"),
        ("013", 3, TopologyDemand(), "013"),
        # Spread: as many islands as possible, and then cards far from each other.
        ("01234567", 2, TopologyDemand("spread"), "07"),
        ("01234567", 4, TopologyDemand("spread"), "0167"),
        ("01234567", 2, TopologyDemand("spread", min_bandwidth_gbps=600), "03"),
        ("01234567", 2, TopologyDemand("spread", mode="Ignore"), "07"),
        # Preferred cards first, then the rest of their island; Required takes no others.
        ("01234567", 3, TopologyDemand("preferIds", prefer_ids=(5, 7)), "567"),
        ("01234567", 2, TopologyDemand("preferIds", prefer_ids=(2, 5, 6)), "56"),
        ("0123467", 2, TopologyDemand("preferIds", mode="Required", prefer_ids=(5, 7)), ""),
        ("01234567", 2, TopologyDemand("preferIds", mode="Required", prefer_ids=(5, 7)), "57"),
        ("01234567", 2, TopologyDemand("preferIds", prefer_ids=(5, 7), min_bandwidth_gbps=600), "01"),
        # Ignore looks at indexes, not at islands: of equal sets the one that the card policy prefers.
        ("76543210", 2, TopologyDemand(mode="Ignore", min_bandwidth_gbps=600), "67"),
        ("1267", 2, TopologyDemand(mode="Ignore"), "12"),
        # One card is the fastest, and of equal ones that of the island with the fewest free cards.
        ("01234567", 1, TopologyDemand(), "0"),
        ("01234567", 1, TopologyDemand(min_bandwidth_gbps=65), "0"),
        ("6514", 1, TopologyDemand(max_tier=LINKED), "1"),
    ],
)
def test_vectors_of_the_example_node(free: str, count: int, demand: TopologyDemand, expected: str) -> None:
    """The example of the documentation, and what its words say of other claims on the same node."""
    assert chosen(EXAMPLE, free, count, demand) == expected


@pytest.mark.parametrize("policy", ["contiguous", "spread"])
def test_a_single_card_comes_from_the_smallest_island(policy: DevicePolicy) -> None:
    """Card 4 has no neighbours, so taking it harms no set, although the others are faster."""
    layout = of_links((*(CardLinks(index, 0, "fast", 450) for index in range(4)), CardLinks(4, 0)))
    assert chosen(layout, "01234", 1, TopologyDemand(policy)) == "4"
    assert chosen(layout, "01234", 1, TopologyDemand(policy, min_bandwidth_gbps=100)) == "0"


@pytest.mark.parametrize(
    ("members", "source", "expected"),
    [
        ((0, 1), "auto", LINKED),
        ((0, 4), "auto", CROSS_NUMA),
        ((0, 1), "numa", SAME_NUMA),
        ((3,), "numa", LINKED),
    ],
)
def test_tier_of_the_worst_pair(members: tuple[int, ...], source: TopologySource, expected: int) -> None:
    """TensorFusion's tiers: linked, same NUMA node, other NUMA node, unknown."""
    assert order.tier(EXAMPLE, members, TopologyDemand(source=source)) == expected


@pytest.mark.parametrize(
    ("members", "tier"), [((0, 1), SAME_NUMA), ((0, 2), CROSS_NUMA), ((0, 4), UNKNOWN), ((2, 3, 4), UNKNOWN)]
)
def test_a_required_tier_rejects_worse_pairs(members: tuple[int, ...], tier: int) -> None:
    """A hard `maxTier` accepts its own tier and better ones; a soft one accepts all, in the order of their tiers."""
    for most in range(4):
        demand = TopologyDemand(mode="Required", max_tier=most)
        assert order.is_acceptable(UNLINKED, members, demand) == (tier <= most)
        assert order.is_acceptable(UNLINKED, members, TopologyDemand(max_tier=most))


def test_an_unknown_tier_can_be_rejected() -> None:
    """`topology.unknown: reject` accepts no unknown pair in mode Required, whatever the tier; else it is the worst."""
    for accepts in (True, False):
        demand = TopologyDemand("spread", mode="Required", accepts_unknown=accepts)
        assert order.is_acceptable(UNLINKED, (0, 4), demand) == accepts
        assert order.is_acceptable(UNLINKED, (0, 2), demand)
        assert order.is_acceptable(UNLINKED, (0, 4), TopologyDemand("spread", accepts_unknown=accepts))


def test_linked_is_hamis_rule() -> None:
    """The highest sum over all pairs wins, of equal ones the first by card policy; one card is linked least."""
    links = {(0, 1): 100, (1, 3): 300, (2, 3): 200, (1, 2): 100}
    scores: dict[str, dict[str, int]] = {}
    for (one, other), score in links.items():
        scores.setdefault(str(one), {})[str(other)] = score
        scores.setdefault(str(other), {})[str(one)] = score
    layout, demand = of_scores([(str(index), index, 0) for index in range(4)], scores), TopologyDemand("linked")
    assert chosen(layout, "0123", 2, demand) == "13"
    assert chosen(layout, "0123", 3, demand) == "123"
    assert chosen(layout, "021", 2, demand) == "01"
    assert chosen(layout, "21", 1, demand) == "2"
    assert order.least_linked(layout, [3, 2, 1, 0]) == 0
    assert order.least_linked(layout, [3, 0]) == 3, "card 0 alone has no links to free cards, as card 3"
