"""Random layouts of cards and demands on them, for property tests; and a brute force that follows the definition."""

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, get_args

from hypothesis import strategies as st
from msgspec.structs import replace

from allocation.topology import order
from allocation.topology.demand import DevicePolicy, TopologyDemand, TopologyMode
from allocation.topology.layout import CardLinks, Layout, PeerLink, TopologySource, of_links, of_scores
from allocation.topology.ranking import WORTH_OF_MEETING

POLICIES: tuple[DevicePolicy | Literal["linked"], ...] = (*get_args(DevicePolicy), "linked")
GBPS = (0, 25, 50, 450, 900)
HUGE = 1 << 70
"""More than any number that a node can mean, but JSON can carry it."""


@st.composite
def indexes(draw: st.DrawFn, *, most: int, least: int = 1) -> list[int]:
    """Return the indexes of a node's cards, ascending; some cards are missing, or have an absurd index."""
    count = draw(st.integers(least, most))
    gaps = draw(st.lists(st.sampled_from((1, 1, 1, 1, 2, 5, HUGE)), min_size=count, max_size=count))
    ids = [0]
    for gap in gaps[1:]:
        ids.append(ids[-1] + gap)
    return ids


@st.composite
def reported_links(draw: st.DrawFn, *, most: int = 10) -> Layout:
    """Return the layout of cards that report islands and links, not always the same ones in both directions."""
    ids = draw(indexes(most=most))
    peers = st.lists(st.builds(PeerLink, st.sampled_from(ids), st.sampled_from(GBPS)), max_size=4)
    few = st.one_of(st.just([]), peers)
    cards = [
        CardLinks(
            index,
            draw(st.sampled_from((-1, 0, 0, 1))),
            draw(st.sampled_from(("", "a", "a", "b"))),
            draw(st.sampled_from((*GBPS, HUGE))),
            tuple(draw(few)),
            draw(st.sampled_from(((), (0, 0), (1, 1)))),
        )
        for index in ids
    ]
    return of_links(tuple(cards))


@st.composite
def reported_scores(draw: st.DrawFn, *, most: int = 10) -> Layout:
    """Return the layout of cards with HAMi's scores, not always the same ones in both directions."""
    cards = [(f"GPU-{index}", index, draw(st.integers(-1, 1))) for index in draw(indexes(most=most))]
    score = st.sampled_from((-HUGE, 0, 10, 50, 100, 120, 600, HUGE))
    return of_scores(cards, {one: {other: draw(score) for other, _, _ in cards} for one, _, _ in cards})


def arbitrary(cards: int, seed: int) -> Layout:
    """Return a layout in which nothing follows from anything else, so that every rule decides about some sets."""
    chance = random.Random(seed)  # noqa: S311 -- a test

    def matrix(*values: int) -> tuple[tuple[int, ...], ...]:
        upper = {pair: chance.choice(values) for pair in combinations(range(cards), 2)}
        return tuple(
            tuple(upper.get((min(one, other), max(one, other)), 0) for other in range(cards)) for one in range(cards)
        )

    bandwidth = [list(row) for row in matrix(0, 50, 50, 450)]
    for card in range(cards):
        bandwidth[card][card] = chance.choice(GBPS)
    return Layout(
        ids=tuple(sorted(chance.sample(range(2 * cards), cards))),
        islands=tuple(chance.choice((0, 0, 1, 2)) for _ in range(cards)),
        numa=tuple(chance.choice((-1, 0, 1)) for _ in range(cards)),
        bandwidth=tuple(map(tuple, bandwidth)),
        tiers=matrix(0, 0, 1, 2, 3),
        numa_tiers=matrix(1, 1, 2, 3),
        scores=matrix(0, 10, 100, 120),
    )


def regular(sizes: list[int], most: int) -> Layout:
    """Return a machine whose islands have these sizes and equal links, so that many sets are equal."""
    island_of = [island for island, size in enumerate(sizes) for _ in range(size)][:most]
    return of_links(tuple(CardLinks(bit, 0, f"nvlink-{island}", 450) for bit, island in enumerate(island_of)))


def layouts(*, most: int = 10) -> st.SearchStrategy[Layout]:
    """Return layouts of all kinds: what nodes can report, and what they cannot, but the rules can be applied to."""
    strange = st.builds(arbitrary, st.integers(1, most), st.integers(0, (1 << 32) - 1))
    alike = st.builds(regular, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.just(most))
    return st.one_of(strange, strange, alike, reported(most=most))


def reported(*, most: int = 10) -> st.SearchStrategy[Layout]:
    """Return layouts of cards that report links or scores."""
    return st.one_of(reported_links(most=most), reported_scores(most=most))


def demands() -> st.SearchStrategy[TopologyDemand]:
    """Return every kind of demand."""
    return st.builds(
        TopologyDemand,
        policy=st.sampled_from(POLICIES),
        mode=st.sampled_from(get_args(TopologyMode)),
        min_bandwidth_gbps=st.one_of(st.just(0), st.sampled_from((*GBPS, 1, 26, 449, (1 << 31) - 1))),
        max_tier=st.one_of(st.none(), st.sampled_from((0, 1, 2, 3))),
        prefer_ids=st.sets(st.integers(0, 12), max_size=8).map(lambda ids: tuple(sorted(ids))),
        source=st.sampled_from(get_args(TopologySource)),
        accepts_unknown=st.booleans(),
    )


def in_each_mode(demand: TopologyDemand) -> list[TopologyDemand]:
    """Return a demand with each policy in each mode."""
    modes: tuple[TopologyMode, ...] = get_args(TopologyMode)
    return [replace(demand, policy=policy, mode=mode) for policy in POLICIES for mode in modes]


def free_masks(layout: Layout) -> st.SearchStrategy[int]:
    """Return masks of free cards, often of nearly all."""
    every = (1 << len(layout)) - 1
    return st.one_of(st.just(every), st.integers(0, every), st.builds(int.__or__, *[st.integers(0, every)] * 2))


def best_set(layout: Layout, count: int, demand: TopologyDemand, preference: Sequence[int]) -> tuple[int, ...]:
    """Return the set that the rules choose, by comparing all; `preference` has the free bits."""
    free = sorted(preference)
    sets = [some for some in combinations(free, count) if order.is_acceptable(layout, some, demand)]

    def key(members: tuple[int, ...]) -> tuple[object, ...]:
        own = order.key(layout, members, demand)
        if demand.policy == "linked" and count == 1:
            own = (sum(layout.scores[members[0]][other] for other in free),)
        touched = {layout.islands[member] for member in members}
        left = sum(layout.islands[card] in touched for card in free) if demand.ranks_nodes else 0
        return own, left, sorted(preference.index(member) for member in members)

    return min(sets, key=key, default=())


def worth_of(layout: Layout, members: tuple[int, ...], demand: TopologyDemand) -> float:
    """Return the worth of a node on which a demand gets a set; -inf if it gets none."""
    if not members:
        return float("-inf")
    if not demand.ranks_nodes:
        return 0.0
    speed = order.bandwidth(layout, members)
    is_near = demand.max_tier is None or order.tier(layout, members, demand) <= demand.max_tier
    meets = is_near and speed >= demand.min_bandwidth_gbps
    return WORTH_OF_MEETING * meets + (speed if len(members) > 1 else 0)
