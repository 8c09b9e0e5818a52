"""A set of cards is compared with the best set of its machine."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.topology import order
from allocation.topology.comparison import Comparison, SetQuality, compare, quality
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import LINKED, UNKNOWN, CardLinks, Layout, of_links
from allocation.topology.subsets import bits_of
from allocation.topology.tables import TopologyTables
from tests.allocation.support import machines

LAYOUTS = tuple(
    of_links(machine())
    for machine in (
        machines.dgx1_v100,
        machines.dgx_a100,
        machines.dgx_h100,
        machines.pcie_pairs,
        machines.islands_2_2,
        machines.pcie_only,
        machines.example_node,
    )
)
EXAMPLE = LAYOUTS[-1]


def compared(
    layout: Layout, demand: TopologyDemand, count: int, *, free: int, usable: int | None = None
) -> tuple[tuple[int, ...], Comparison]:
    """Return the bits of the best free set, and its comparison."""
    tables = TopologyTables()
    number = tables.acquire(layout)
    usable = (1 << len(layout)) - 1 if usable is None else usable
    chosen = tables.choose(number, free, count, demand, preference=bits_of(free))
    return chosen, compare(tables, number, demand, count, chosen=chosen, free=free, usable=[usable])


def test_quality_is_that_of_the_slowest_and_worst_pair() -> None:
    """Cards of two islands are not linked, and their island has the cards of both."""
    assert quality(EXAMPLE, (0, 1), TopologyDemand()) == SetQuality((0, 1), 600, LINKED, 1, 4)
    assert quality(EXAMPLE, (3, 4), TopologyDemand()) == SetQuality((3, 4), 0, UNKNOWN, 2, 8)
    assert quality(EXAMPLE, (5,), TopologyDemand()) == SetQuality((5,), 64, LINKED, 1, 4)


def test_the_island_with_most_free_cards_is_named() -> None:
    """Of two equal islands, the pod waits for the one that lacks one card, not for the one that lacks three."""
    halves = of_links(tuple(CardLinks(index, 0, "ab"[index // 4], 300) for index in range(8)))
    chosen, found = compared(halves, TopologyDemand(mode="Required"), 4, free=0b11100001)
    assert (chosen, found.chosen) == ((), None)
    assert (found.better, found.missing) == (SetQuality((4, 5, 6, 7), 300, LINKED, 1, 4), (4,))


def test_of_equal_sets_a_free_one_is_named() -> None:
    """A running pod could have a better set at once, or would have to wait for a card: the first is named."""
    tables = TopologyTables()
    number = tables.acquire(EXAMPLE)
    found = compare(tables, number, TopologyDemand(), 2, chosen=(4, 5), free=0b11111101, usable=[0b11111111])
    assert found.better is not None
    assert (found.better.ids, found.missing) == ((2, 3), ())


@given(data=st.data())
def test_a_better_set_is_the_best_of_the_usable_cards(data: st.DataObject) -> None:
    """On every recorded machine, against brute force: it beats the chosen one, and no set beats it."""
    layout = data.draw(st.sampled_from(LAYOUTS))
    every = (1 << len(layout)) - 1
    usable = data.draw(st.integers(0, every))
    free = usable & data.draw(st.integers(0, every))
    count = data.draw(st.integers(1, 4))
    demand = TopologyDemand(
        data.draw(st.sampled_from(["contiguous", "spread", "preferIds", "linked"])),
        data.draw(st.sampled_from(["Required", "Preferred", "Ignore"])),
        data.draw(st.sampled_from([0, 25, 64, 300, 600])),
        data.draw(st.sampled_from([None, 0, 1, 2])),
        tuple(sorted(data.draw(st.sets(st.integers(0, 7), max_size=4)))),
    )
    chosen, found = compared(layout, demand, count, free=free, usable=usable)
    keys = [
        order.key(layout, some, demand)
        for some in combinations(bits_of(usable), count)
        if order.is_acceptable(layout, some, demand)
    ]
    assert (found.chosen is not None) == bool(chosen)
    if found.better is None:
        assert not keys if not chosen else order.key(layout, chosen, demand) == min(keys)
        assert found.missing == ()
        return
    better = [layout.ids.index(index) for index in found.better.ids]
    assert order.key(layout, better, demand) == min(keys)
    assert not chosen or order.key(layout, chosen, demand) > min(keys)
    assert found.missing == tuple(layout.ids[bit] for bit in better if not free >> bit & 1)
    assert found.missing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_better_than_the_best_set_of_an_idle_machine(layout: Layout) -> None:
    """On a machine that no pod uses, the chosen set is the best one, whatever the policy."""
    for policy in ("contiguous", "spread"):
        for count in (1, 2, 3, 4):
            _, found = compared(layout, TopologyDemand(policy), count, free=(1 << len(layout)) - 1)
            assert found.better is None
