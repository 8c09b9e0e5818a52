"""The order of many sets at once: `allocation.topology.order` in numpy."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from math import prod
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import UNKNOWN, Layout, TopologySource

WORTH_OF_MEETING: Final = 1 << 21
"""More than any bandwidth in GB/s: a set that meets the demand comes before all that do not."""

Numbers = NDArray[np.integer[Any] | np.bool_]
"""A number for each set, of whatever type has room for it; shape (set,)."""

_Column = tuple[Numbers, int]
"""Numbers that decide, and 1 if lower ones are better, -1 if higher ones are."""

_MOST_KEYS: Final = 1 << 47
"""Keys are below, so that a table can sort keys and masks of 16 cards as one number."""


Property = Literal[
    "bandwidth", "tier", "numa_tier", "islands", "island_size", "numa_nodes", "span", "distance", "score"
]
"""What decides of a set; `allocation.topology.subsets.Subsets` says what each is."""


class Sets(ABC):
    """Some sets of cards of a layout, all of `count` cards."""

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout = layout
        self.count = count

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of sets."""

    @abstractmethod
    def values(self, name: Property) -> Numbers:
        """Return a property of each set."""

    @abstractmethod
    def number_of(self, bits: Collection[int]) -> Numbers:
        """Return how many of `bits` each set has."""

    def tiers(self, source: TopologySource) -> Numbers:
        """Return the tier of the worst pair of each set according to one source."""
        return self.values("numa_tier" if source == "numa" else "tier")


def keys(sets: Sets, demand: TopologyDemand) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return a key for each set, and whether the demand accepts it; None if it accepts all.

    The better of two sets has the lower key. Keys of different calls cannot be compared.
    """
    if demand.policy == "linked":
        return _packed([(sets.values("score"), -1)]), None
    liked: list[_Column] = [(sets.number_of(_bits(sets, demand)), -1)] if demand.policy == "preferIds" else []
    if demand.mode == "Ignore":
        return _packed(
            [(sets.values("distance"), -1)] if demand.policy == "spread" else [*liked, (sets.values("span"), 1)]
        ), None
    speed, islands, worst = sets.values("bandwidth"), sets.values("islands"), sets.tiers(demand.source)
    is_slow, is_far = speed < demand.min_bandwidth_gbps, _is_far(worst, demand)
    if sets.count == 1:
        own: list[_Column] = [(sets.values("island_size"), 1), (speed, -1)]
    elif demand.policy == "spread":
        own = [(islands, -1), (sets.values("numa_nodes"), -1), (sets.values("distance"), -1), (speed, -1)]
    else:
        span = sets.values("span")
        own = [(islands > 1, 1), (worst, 1), (span > sets.count - 1, 1), (speed, -1), (span, 1)]
    packed = _packed([(is_slow, 1), (is_far, 1), *liked, *own])
    if not demand.is_required:
        return packed, None
    accepted = ~(is_slow | is_far)
    if not demand.accepts_unknown:
        accepted &= worst != UNKNOWN
    if demand.policy == "preferIds":
        accepted &= liked[0][0] == sets.count
    if demand.policy == "contiguous" and demand.max_tier is None:
        accepted &= islands == 1
    return packed, accepted


def worths(sets: Sets, demand: TopologyDemand) -> NDArray[np.float64]:
    """Return how good a node is by each set: its bandwidth, and more if it meets the demand; 0 if sets do not count.

    The bandwidth of a single card does not count, so that pods with one card do not fill the fastest nodes.
    """
    if not demand.ranks_nodes:
        return np.zeros(len(sets))
    speed = sets.values("bandwidth")
    meets = (speed >= demand.min_bandwidth_gbps) & ~_is_far(sets.tiers(demand.source), demand)
    worths: NDArray[np.float64] = WORTH_OF_MEETING * meets.astype(np.float64)
    return worths + speed if sets.count > 1 else worths


def _bits(sets: Sets, demand: TopologyDemand) -> list[int]:
    """Return the preferred bits."""
    return [bit for bit, index in enumerate(sets.layout.ids) if index in demand.prefer_ids]


def _is_far(tiers: Numbers, demand: TopologyDemand) -> NDArray[np.bool_]:
    """Return whether each set has a worse tier than demanded."""
    is_far: NDArray[np.bool_] = tiers > (demand.max_tier if demand.max_tier is not None else UNKNOWN)
    return is_far


def _packed(columns: list[_Column]) -> NDArray[np.int64]:
    """Return one number for each row, which has the lexicographic order of the columns."""
    packed = np.zeros(len(columns[0][0]), np.int64)
    if not len(packed):
        return packed
    widths = [int(values.max()) - int(values.min()) + 1 for values, _ in columns]
    if prod(widths) > _MOST_KEYS:
        columns = [(np.unique(values, return_inverse=True)[1], sign) for values, sign in columns]
    for values, sign in columns:
        low, high = int(values.min()), int(values.max())
        if low < high:
            packed *= high - low + 1
            packed += values - low if sign > 0 else high - values
    return packed
