"""What a pod demands of the connections between its cards: by a GpuClaim, or by annotations."""

from bisect import bisect_left
from functools import lru_cache
from typing import Literal

import msgspec

from allocation.topology.layout import Layout, TopologySource

DevicePolicy = Literal["contiguous", "spread", "preferIds"]
TopologyMode = Literal["Required", "Preferred", "Ignore"]


class TopologyDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """Which sets of cards a pod accepts, and which it prefers; `allocation.topology.order` has the rules.

    Attributes:
        policy: which sets it prefers. `linked` is HAMi's topology-aware: the highest sum of scores over all pairs, on
            whatever node.
        mode: whether the demand rejects sets, only ranks them, or looks at the indexes of cards alone.
        min_bandwidth_gbps: GB/s in one direction that the slowest pair should have, or a card alone.
        max_tier: the worst tier that a pair should have; None accepts all.
        prefer_ids: the indexes that the policy preferIds prefers, ascending.
        source: what tiers are taken from.
        accepts_unknown: whether a set may have a pair whose tier is not known, in mode Required.
    """

    policy: DevicePolicy | Literal["linked"] = "contiguous"
    mode: TopologyMode = "Preferred"
    min_bandwidth_gbps: int = 0
    max_tier: int | None = None
    prefer_ids: tuple[int, ...] = ()
    source: TopologySource = "auto"
    accepts_unknown: bool = True

    @property
    def is_required(self) -> bool:
        """Whether nodes without an acceptable set are rejected."""
        return self.mode == "Required" and self.policy != "linked"

    @property
    def ranks_nodes(self) -> bool:
        """Whether a node with a better set comes before one with a worse set."""
        return self.mode != "Ignore" and self.policy != "linked"

    def on(self, layout: Layout) -> "TopologyDemand":
        """Return an equivalent demand on cards of `layout`; of all that users can write, few are different there.

        The bandwidth is one that a pair or a card has, or one more than the highest; ids are those of existing cards.
        What does not count with this policy and mode has its default.
        """
        if self.policy == "linked":
            return TopologyDemand("linked")
        ids = tuple(sorted({*self.prefer_ids}.intersection(layout.ids))) if self.policy == "preferIds" else ()
        if self.mode == "Ignore":
            return TopologyDemand(self.policy, "Ignore", prefer_ids=ids)
        amounts = _bandwidths(layout)
        least = bisect_left(amounts, self.min_bandwidth_gbps)
        return msgspec.structs.replace(
            self,
            min_bandwidth_gbps=amounts[least] if least < len(amounts) else max(amounts, default=0) + 1,
            prefer_ids=ids,
            accepts_unknown=self.accepts_unknown or not self.is_required,
        )


@lru_cache(maxsize=256)
def _bandwidths(layout: Layout) -> tuple[int, ...]:
    """Return the bandwidths of all pairs and cards, ascending."""
    return tuple(sorted({amount for row in layout.bandwidth for amount in row}))
