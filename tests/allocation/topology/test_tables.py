"""Tables find the set that the rules choose, at once for all nodes, and no user can displace those of others."""

import random
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.topology import order
from allocation.topology.demand import DevicePolicy, TopologyDemand
from allocation.topology.layout import SAME_NUMA, CardLinks, Layout, of_links, of_scores
from allocation.topology.ranking import WORTH_OF_MEETING
from allocation.topology.subsets import bits_of
from allocation.topology.tables import SetTable, TableCache, TableKey, TopologyTables
from tests.allocation.support.layouts import best_set, demands, free_masks, in_each_mode, layouts, worth_of

MIB = 1 << 20
EACH_POLICY = (
    TopologyDemand("contiguous"),
    TopologyDemand("spread"),
    TopologyDemand("preferIds", prefer_ids=(1, 5, 6)),
    TopologyDemand("linked"),
)


def machine(cards: int, *, island: int, gbps: int = 450) -> Layout:
    """Return a machine type with islands of equal size."""
    return of_links(tuple(CardLinks(bit, bit * 2 // cards, f"nvlink-{bit // island}", gbps) for bit in range(cards)))


def tables_of(*layouts: Layout) -> TopologyTables:
    """Return tables that know these layouts, by number."""
    tables = TopologyTables()
    for layout in layouts:
        tables.acquire(layout)
    return tables


@given(layout=st.one_of(layouts(most=7), layouts(most=10)), drawn=demands(), data=st.data())
def test_the_chosen_set_is_the_best_of_all(layout: Layout, drawn: TopologyDemand, data: st.DataObject) -> None:
    """The choice and its worth are those of a brute force, for every layout, demand, mask and preference."""
    tables, count = tables_of(layout), data.draw(st.integers(1, len(layout)))
    free = data.draw(free_masks(layout))
    preference = data.draw(st.permutations(bits_of(free)))
    for demand in in_each_mode(drawn):
        chosen = tables.choose(0, free, count, demand, preference=preference)
        assert chosen == best_set(layout, count, demand, preference)
        assert tables.worth(0, free, count, demand) == worth_of(layout, chosen, demand)
        assert not chosen or (len({*chosen}) == count and {*chosen} <= {*bits_of(free)})


@given(machines=st.lists(layouts(most=6), min_size=1, max_size=4), demand=demands(), data=st.data())
def test_worths_are_those_of_each_node(machines: list[Layout], demand: TopologyDemand, data: st.DataObject) -> None:
    """All nodes at once have the worths that they have one by one, also those with fewer cards than demanded."""
    tables = TopologyTables()
    nodes = data.draw(st.lists(st.sampled_from(machines), max_size=8))
    numbers = [tables.acquire(layout) for layout in nodes]
    free = [data.draw(free_masks(layout)) for layout in nodes]
    count = data.draw(st.integers(1, 7))
    worths = tables.worths(np.array(numbers, np.int64), np.array(free, np.int64), count, demand)
    assert worths.tolist() == [tables.worth(*node, count, demand) for node in zip(numbers, free, strict=True)]


@given(layout=layouts(most=6), drawn=demands(), data=st.data())
def test_a_demand_on_a_layout_is_equivalent(layout: Layout, drawn: TopologyDemand, data: st.DataObject) -> None:
    """The demand that tables are made for accepts the same sets, has the same order and the same worths."""
    count = data.draw(st.integers(1, len(layout)))
    preference = data.draw(st.permutations(range(len(layout))))
    for demand in in_each_mode(drawn):
        reduced = demand.on(layout)
        chosen = best_set(layout, count, demand, preference)
        assert best_set(layout, count, reduced, preference) == chosen
        assert worth_of(layout, chosen, reduced) == worth_of(layout, chosen, demand)
        assert reduced.on(layout) == reduced


@pytest.mark.parametrize("demand", EACH_POLICY)
def test_sixteen_cards_are_searched_exactly(demand: TopologyDemand) -> None:
    """The largest table that there is, on a machine where every pair differs, agrees with the rules."""
    chance = random.Random(demand.policy)  # noqa: S311 -- a test
    scores = {str(one): {str(other): (one * other * 7919) % 1000 for other in range(16)} for one in range(16)}
    layout = of_scores([(str(index), index, index % 3) for index in range(16)], scores)
    tables = tables_of(layout)
    for count in (5, 8):
        preference = chance.sample(range(16), 12)
        chosen = tables.choose(0, sum(1 << bit for bit in preference), count, demand, preference=preference)
        assert chosen == best_set(layout, count, demand, preference)


def test_a_set_that_meets_the_demand_comes_before_all_others() -> None:
    """A node with a slower set that meets the demanded tier is worth more than one with a faster set that does not."""
    near = of_links((CardLinks(0, 0), CardLinks(1, 0)))
    far = of_links((CardLinks(0, 0), CardLinks(1, 1)))
    tables = tables_of(near, far)
    demand = TopologyDemand(max_tier=1)
    assert tables.worth(0, 0b11, 2, demand) == WORTH_OF_MEETING
    assert tables.worth(1, 0b11, 2, demand) == 0


@pytest.mark.parametrize("policy", ["contiguous", "spread", "preferIds"])
def test_the_demanded_bandwidth_comes_before_the_demanded_tier(policy: DevicePolicy) -> None:
    """Where no set has both, the one with the bandwidth is chosen, whatever the policy prefers."""
    cards = (CardLinks(0, 0, "nvlink", 450), CardLinks(1, 1, "nvlink", 450), CardLinks(2, 0), CardLinks(3, 0))
    layout = of_links(cards)
    demand = TopologyDemand(policy, min_bandwidth_gbps=300, max_tier=SAME_NUMA, prefer_ids=(2, 3), source="numa")
    for free in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert best_set(layout, 2, demand, free) == (0, 1)
        assert tables_of(layout).choose(0, 0b1111, 2, demand, preference=free) == (0, 1)


def test_of_equal_sets_the_tightest_is_chosen() -> None:
    """A pair that uses up an island comes before the pairs of an island with three free cards, unless Ignore is set."""
    tables = tables_of(machine(8, island=4))
    assert tables.choose(0, 0b01100111, 2, TopologyDemand(), preference=[0, 1, 2, 5, 6]) == (5, 6)
    assert tables.choose(0, 0b01100111, 2, TopologyDemand(mode="Ignore"), preference=[0, 1, 2, 5, 6]) == (0, 1)


def test_absurd_numbers_keep_the_order() -> None:
    """Indexes and bandwidths as far apart as possible, which together would overflow a key, decide as small ones do."""
    most = (1 << 20) - 1
    ids = [*range(5), *range(most - 4, most + 1)]
    layout = of_links(
        tuple(CardLinks(ids[bit], bit // 5 + bit // 9, f"nvlink-{'aaaaaabbbc'[bit]}", most - bit) for bit in range(10))
    )
    tables, free = tables_of(layout), [*range(10)]
    demand = TopologyDemand("spread", min_bandwidth_gbps=most // 3, max_tier=0)
    for mask in range(1 << 10):
        preference = [bit for bit in free if not mask >> bit & 1]
        if 5 <= len(preference) <= 6:
            chosen = tables.choose(0, (1 << 10) - 1 & ~mask, 5, demand, preference=preference)
            assert chosen == best_set(layout, 5, demand, preference)


def test_linked_takes_the_card_that_free_cards_miss_least() -> None:
    """It depends on the free cards, so no table has it (HAMi's rules 2.2)."""
    layout = machine(4, island=2)
    tables, demand = tables_of(layout), TopologyDemand("linked")
    assert tables.choose(0, 0b1111, 1, demand, preference=[2, 1, 0, 3]) == (2,)
    assert tables.choose(0, 0b1011, 1, demand, preference=[0, 1, 3]) == (3,)
    assert order.least_linked(layout, [0, 1, 3]) == 3


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_hostile_demands_displace_only_one_another() -> None:
    """1,000 sets of preferred indexes and 1,000 bandwidths leave every other table in place, and memory bounded."""
    layout = machine(16, island=4)
    tables, every = tables_of(layout), 0xFFFF
    demand = TopologyDemand(min_bandwidth_gbps=300)
    tables.worth(0, every, 8, demand)
    table = tables.table(0, 8, demand)
    chance = random.Random(1)  # noqa: S311 -- a test
    for number in range(1000):
        ids = tuple(sorted(chance.sample(range(1024), 100) + chance.sample(range(16), 5)))
        tables.worth(0, every, 8, TopologyDemand("preferIds", prefer_ids=ids))
        tables.worth(0, every, 8, TopologyDemand(prefer_ids=ids))
        tables.worth(0, every, 8, TopologyDemand(min_bandwidth_gbps=chance.randrange(1 << 31), max_tier=number % 4))
        if number % 100 == 0:
            assert tables.nbytes <= 20 * MIB
    assert tables.table(0, 8, demand) is table


def test_tables_of_64_machine_types_take_20_mib() -> None:
    """All 64 tables of 16 cards are kept, with what they are made of, in 20 MiB."""
    machines = [machine(16, island=island, gbps=gbps) for gbps in range(16) for island in (2, 4, 8, 16)]
    tables = tables_of(*machines)
    demand = TopologyDemand()
    kept = [tables.table(number, 8, demand) for number in range(64)]
    assert [tables.table(number, 8, demand) for number in range(64)] == kept
    for number in range(64):
        for other in EACH_POLICY:
            for count in (1, 8, 12):
                tables.table(number, count, other)
                tables.table(number, count, msgspec.structs.replace(other, mode="Required", source="numa"))
    assert 10 * MIB < tables.nbytes <= 20 * MIB


def test_the_tables_that_were_used_last_are_kept() -> None:
    """Those of a layout that no node has any more go in any case."""

    def key(layout: int) -> TableKey:
        return layout, 2, TopologyDemand()

    table = cast("SetTable", SimpleNamespace(nbytes=10_000))
    cache = TableCache(25_000)
    for layout in (1, 2):
        cache.add(key(layout), table)
    assert cache.get(key(1)) is table
    cache.add(key(3), table)
    assert [cache.get(key(layout)) is table for layout in (1, 2, 3)] == [True, False, True]
    cache.forget(1)
    assert [cache.get(key(layout)) is table for layout in (1, 2, 3)] == [False, False, True]
    cache.forget(3)
    assert cache.nbytes == 0
