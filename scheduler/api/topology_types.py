"""The explanation of a set of cards: how its cards are connected, and why the pod has no better one."""

from typing import Literal

import msgspec

from allocation.topology.demand import DevicePolicy, TopologyMode
from allocation.topology.layout import TopologySource
from scheduler.api.json_names import json_name


class TopologyRequest(msgspec.Struct, frozen=True, rename=json_name):
    """What a pod demands of the connections between the cards of a container.

    Attributes:
        cards: the number of cards.
        policy: which sets it prefers: `contiguous`, `spread`, `preferIds`; or `linked`, HAMi's topology-aware.
        mode: `Required`, other sets are not given; `Preferred`, such sets come first; `Ignore`, only the indexes count.
        min_bandwidth_gbps: GB/s in one direction that the slowest pair, or a single card, should have.
        max_tier: the worst tier that a pair should have; None accepts all.
        prefer_ids: the indexes of the cards that `preferIds` prefers.
        accepts_unknown: whether a `Required` set may have a pair whose tier is not known.
        source: what tiers are taken from.
    """

    cards: int
    policy: DevicePolicy | Literal["linked"]
    mode: TopologyMode
    min_bandwidth_gbps: int = 0
    max_tier: int | None = None
    prefer_ids: tuple[int, ...] = ()
    accepts_unknown: bool = True
    source: TopologySource = "auto"


class CardSet(msgspec.Struct, frozen=True, rename=json_name):
    """A set of cards of one node.

    Attributes:
        indexes: of the cards, ascending.
        bandwidth_gbps: GB/s of the slowest pair in one direction, 0 if a pair is not linked; of a single card, that of
            its links.
        tier: of the worst pair: 0 linked, 1 on one NUMA node, 2 on different NUMA nodes, 3 not known.
        islands: how many NVLink islands the set touches; a card without links is an island by itself.
        island_cards: how many cards of the node these islands have.
    """

    indexes: tuple[int, ...]
    bandwidth_gbps: int
    tier: int
    islands: int
    island_cards: int


class MissingCard(msgspec.Struct, frozen=True):
    """A card that is not free.

    Attributes:
        index: NVML's index.
        pods: the pods that hold it, as `namespace/name`; empty if an earlier container of the pod itself does, or a
            Lease or a quota closes it, and for users who have rights in one namespace only.
    """

    index: int
    pods: tuple[str, ...] = ()


class TopologyExplanation(msgspec.Struct, frozen=True):
    """The set of cards of one container, compared with the best set of the node.

    Attributes:
        container: the name of the container; for a pod with a GpuClaim, that of the first.
        request: what the pod demands.
        chosen: the set that the container has or would have; None if the node has no acceptable set of free cards.
        better: the best acceptable set if no pod held any card of the node; None if `chosen` is as good, or if the node
            has no acceptable set of usable cards.
        missing: the cards of `better` that are not free.
        text: all of this as a sentence.
        nearest: where the node has no acceptable set, its best set all the same; None if it has too few usable cards.
    """

    container: str
    request: TopologyRequest
    chosen: CardSet | None
    better: CardSet | None
    missing: tuple[MissingCard, ...]
    text: str
    nearest: CardSet | None = None
