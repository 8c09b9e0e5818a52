"""Sets of cards on nodes with too many cards for tables: as good as those of tables where groups are nested."""

from functools import cache
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.topology import large_node, order
from allocation.topology.demand import DevicePolicy, TopologyDemand
from allocation.topology.layout import CardLinks, Layout, PeerLink, of_links
from allocation.topology.listed_sets import card_arrays
from allocation.topology.ranking import WORTH_OF_MEETING
from allocation.topology.subsets import bits_of
from allocation.topology.tables import TopologyTables
from tests.allocation.support.layouts import best_set, demands, free_masks, in_each_mode, layouts, worth_of


@st.composite
def nested_layouts(draw: st.DrawFn) -> Layout:
    """Return cards in nested groups: NUMA nodes of islands of pairs, so that the bandwidth is an ultrametric."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 8))
    island_of = [island for island, size in enumerate(sizes) for _ in range(size)]
    fast, slow = draw(st.sampled_from(((900, 450), (100, 50)))), draw(st.sampled_from((25, 50)))
    indexes = draw(st.permutations(range(len(island_of)))) if draw(st.booleans()) else range(len(island_of))
    place = dict(zip(indexes, range(len(island_of)), strict=True))
    pairs = {index: place[index] // 2 for index in place}

    def links(index: int) -> tuple[PeerLink, ...]:
        island = island_of[place[index]]
        return tuple(
            PeerLink(other, fast[island % 2] if pairs[other] == pairs[index] else slow)
            for other in place
            if other != index and island_of[place[other]] == island
        )

    per_numa = draw(st.integers(1, 3))
    return of_links(
        tuple(
            CardLinks(index, island_of[place[index]] // per_numa, f"nvlink-{island_of[place[index]]}", 0, links(index))
            for index in sorted(place)
        )
    )


def quality(layout: Layout, members: tuple[int, ...], demand: TopologyDemand) -> tuple[object, ...]:
    """Return what must be the best there is of a set in nested groups: all before the positions of its indexes."""
    speed, tier = order.bandwidth(layout, members), order.tier(layout, members, demand)
    liked = sum(layout.ids[member] in demand.prefer_ids for member in members) if demand.policy == "preferIds" else 0
    is_far = demand.max_tier is not None and tier > demand.max_tier
    own = (len({layout.islands[member] for member in members}) > 1, tier) if demand.policy != "spread" else ()
    return (speed < demand.min_bandwidth_gbps, is_far, -liked, *own)


@given(layout=nested_layouts(), drawn=demands(), data=st.data())
def test_in_nested_groups_the_tier_is_the_best_of_all(
    layout: Layout, drawn: TopologyDemand, data: st.DataObject
) -> None:
    """Where links are nested, no acceptable set has a better tier, or more preferred cards, or meets more."""
    count = data.draw(st.integers(1, len(layout)))
    preference = data.draw(st.permutations(bits_of(data.draw(free_masks(layout)))))
    if len(preference) < count:
        return
    free = sum(1 << bit for bit in preference)
    for demand in in_each_mode(drawn):
        chosen = large_node.choose(layout, free, count, demand.on(layout), preference=preference)
        exact = best_set(layout, count, demand, preference)
        assert bool(chosen) == bool(exact)
        if demand.policy == "linked":
            assert count > 1 or chosen == exact
        elif chosen and demand.mode != "Ignore":
            assert quality(layout, chosen, demand) == quality(layout, exact, demand)


@given(layout=layouts(), demand=demands(), data=st.data())
def test_the_chosen_set_is_acceptable_and_free(layout: Layout, demand: TopologyDemand, data: st.DataObject) -> None:
    """On any layout the set has `count` free cards, is accepted, and has the worth that ranked its node."""
    count = data.draw(st.integers(1, len(layout)))
    preference = data.draw(st.permutations(bits_of(data.draw(free_masks(layout)))))
    if len(preference) < count:
        return
    free, demand = sum(1 << bit for bit in preference), demand.on(layout)
    found = large_node.choose(layout, free, count, demand, preference=sorted(preference))
    assert large_node.worth(layout, free, count, demand) == worth_of(layout, found, demand)
    chosen = large_node.choose(layout, free, count, demand, preference=preference)
    assert bool(chosen) == bool(found)
    if chosen:
        assert len({*chosen}) == count
        assert {*chosen} <= {*preference}
        assert list(chosen) == sorted(chosen)
        assert order.is_acceptable(layout, chosen, demand)
        assert order.key(layout, chosen, demand) <= order.key(layout, found, demand)


def rack(cards: int, *, island: int) -> Layout:
    """Return a large node with islands of equal size next to two CPUs."""
    return of_links(tuple(CardLinks(bit, bit * 2 // cards, f"nvlink-{bit // island}", 450) for bit in range(cards)))


def test_a_whole_island_is_found_among_32_cards() -> None:
    """Of 4 islands of 8 cards the only one that is free as a whole is chosen, and Required rejects without one."""
    layout, tables = rack(32, island=8), TopologyTables()
    number, demand = tables.acquire(layout), TopologyDemand(mode="Required", min_bandwidth_gbps=300)
    free = sum(1 << bit for bit in range(32) if bit not in (3, 12, 30))
    preference = bits_of(free)[::-1]
    assert tables.choose(number, free, 8, demand, preference=preference) == tuple(range(16, 24))
    assert tables.worth(number, free, 8, demand) == 450 + WORTH_OF_MEETING
    assert tables.choose(number, free, 7, demand, preference=preference) == tuple(range(17, 24))
    without = free & ~(1 << 20)
    assert tables.choose(number, without, 8, demand, preference=bits_of(without)) == ()
    assert tables.worth(number, without, 8, demand) == float("-inf")
    spread = tables.choose(number, free, 4, TopologyDemand("spread"), preference=preference)
    assert [bit // 8 for bit in spread] == [0, 1, 2, 3]
    liked = TopologyDemand("preferIds", prefer_ids=(1, 9, 10, 11))
    assert tables.choose(number, free, 4, liked, preference=preference) == (1, 9, 10, 11)
    assert tables.choose(number, free, 3, liked, preference=preference) == (9, 10, 11)


def test_the_cards_that_the_policy_prefers_decide_between_equal_sets() -> None:
    """Without links, HAMi's policy takes the first cards; with equal islands the preferred one is taken."""
    unlinked = of_links(tuple(CardLinks(bit, 0) for bit in range(20)))
    preference = [*range(19, -1, -1)]
    assert large_node.choose(unlinked, (1 << 20) - 1, 3, TopologyDemand("linked"), preference=preference) == (
        17,
        18,
        19,
    )
    islands = rack(24, island=8)
    assert large_node.choose(islands, (1 << 24) - 1, 8, TopologyDemand(), preference=[*range(23, -1, -1)]) == tuple(
        range(16, 24)
    )


def test_of_preferred_cards_those_next_to_one_another_are_chosen() -> None:
    """As in tables: the number of preferred cards decides first, then how far apart their indexes are."""
    unlinked = of_links(tuple(CardLinks(bit, 0) for bit in range(40)))
    liked = TopologyDemand("preferIds", mode="Ignore", prefer_ids=(1, 12, 26, 29, 33))
    for count, expected in ((2, (26, 29)), (3, (26, 29, 33)), (4, (12, 26, 29, 33))):
        assert large_node.choose(unlinked, (1 << 40) - 1, count, liked, preference=range(40)) == expected


def test_idle_nodes_of_a_machine_type_share_a_search() -> None:
    """The same free cards and demand are searched once, however many nodes have them."""
    layout, free = rack(40, island=4), (1 << 40) - 1
    before = large_node.search.cache_info().misses
    for _ in range(100):
        large_node.worth(layout, free, 4, TopologyDemand())
    assert large_node.search.cache_info().misses == before + 1


@pytest.mark.parametrize("policy", ["contiguous", "spread", "preferIds", "linked"])
def test_1024_cards_have_few_candidates(policy: DevicePolicy | Literal["linked"]) -> None:
    """A search takes as long as its candidates have pairs of cards. Contiguous takes whole islands."""
    layout, free = _large(), (1 << 1024) - 1
    demand = TopologyDemand(policy, prefer_ids=tuple(range(0, 1024, 8))).on(layout)
    candidates = large_node._candidates(card_arrays(layout), np.arange(1024), 128, demand)
    assert 0 < len(candidates) * 128**2 <= 2 * large_node._MOST_PAIRS
    chosen = large_node.choose(layout, free, 128, demand, preference=range(1023, -1, -1))
    assert len({*chosen}) == 128
    if policy == "contiguous":
        assert len({bit // 8 for bit in chosen}) == 16


@cache
def _large() -> Layout:
    return rack(1024, island=8)
