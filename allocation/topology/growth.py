"""Sets of cards that grow from one card, each time by the card that suits the set best."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import LINKED, UNKNOWN
from allocation.topology.listed_sets import CardArrays, Cards

_BITS: Final = 20
"""Indexes and bandwidths are below 2²⁰ (`allocation.topology.layout`)."""
_TAKEN: Final = np.iinfo(np.int64).max

Costs = NDArray[np.int64]
"""A number for each growing set and each free card; shape (set, card)."""


def grown(cards: CardArrays, free: Cards, count: int, demand: TopologyDemand, *, seeds: int) -> Cards:
    """Return as many sets of `count` of the `free` cards as there are seeds; shape (set, card).

    Seeds are cards at equal distances in `free`, from its first one on; preferred indexes come first. Of cards that
    suit a set equally the first of `free` is added.
    """
    growth = _Growth(cards, free, demand, seeds)
    chosen = np.empty((seeds, count), np.int64)
    chosen[:, 0] = np.argsort(growth.dislike, kind="stable")[np.linspace(0, len(free) - 1, seeds).astype(np.int64)]
    taken = np.zeros((seeds, len(free)), np.bool_)
    for number in range(1, count):
        last = chosen[:, number - 1]
        taken[np.arange(seeds), last] = True
        costs = growth.costs(last)
        costs[taken] = _TAKEN
        chosen[:, number] = costs.argmin(axis=1)
    return free[chosen]


class _Growth:
    """What decides about the next card of each set; every array has shape (set, card)."""

    def __init__(self, cards: CardArrays, free: Cards, demand: TopologyDemand, sets: int) -> None:
        self._cards, self._free, self._demand = cards, free, demand
        self._ids = cards.ids[free]
        self.dislike = np.zeros(len(free), np.int64)
        if demand.policy == "preferIds":
            self.dislike += ~np.isin(self._ids, demand.prefer_ids)
        shape = (sets, len(free))
        self._speed = np.full(shape, (1 << _BITS) - 1, np.int64)
        self._tier = np.full(shape, LINKED, np.int64)
        self._sum = np.zeros(shape, np.int64)
        self._same_island, self._same_numa = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._low = self._high = np.broadcast_to(self._ids, shape)

    def costs(self, last: NDArray[np.int64]) -> Costs:
        """Return the cost of each free card after the card at place `last` of the free ones was added to each set."""
        cards, free, demand = self._cards, self._free, self._demand
        pairs, ids = (free[last][:, np.newaxis], free), self._ids[last][:, np.newaxis]
        if demand.policy == "linked":
            self._sum -= cards.score[pairs]
            return self._sum.copy()
        speed = np.minimum(self._speed, cards.bandwidth[pairs], out=self._speed)
        tier = np.maximum(self._tier, self._tiers(pairs), out=self._tier)
        costs = (speed < demand.min_bandwidth_gbps).astype(np.int64)
        if demand.max_tier is not None:
            costs = costs * 2 + (tier > demand.max_tier)
        if demand.policy == "spread":
            self._sum -= np.abs(self._ids - ids)
            self._same_island |= cards.islands[free] == cards.islands[free[last]][:, np.newaxis]
            self._same_numa |= cards.numa[free] == cards.numa[free[last]][:, np.newaxis]
            return ((costs * 2 + self._same_island) * 2 + self._same_numa) * (1 << 2 * _BITS) + self._sum
        self._low, self._high = np.minimum(self._low, ids), np.maximum(self._high, ids)
        costs = (costs * 2 + self.dislike) * (UNKNOWN + 1) + tier
        return (costs * (1 << _BITS) - speed) * (1 << _BITS) + self._high - self._low

    def _tiers(self, pairs: tuple[NDArray[np.int64], ...]) -> NDArray[np.int32]:
        source = self._demand.source
        return (self._cards.numa_tier if source == "numa" else self._cards.tier)[pairs]
