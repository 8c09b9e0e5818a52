"""The cards of a node as an agent reports them."""

from collections.abc import Mapping

import msgspec

WHOLE_CORES = 1000
CARD_MODES = ("hami-core", "mig", "mps")


class Card(msgspec.Struct, frozen=True):
    """One GPU.

    Attributes:
        uuid: NVML's UUID, unique in the cluster.
        index: NVML's index on its node.
        memory_mib: device memory, rounded down.
        cores: compute in millicards; 1000 is one whole card.
        slots: how many containers may share it.
        model: NVML's name.
        numa: NUMA node; 0 where unknown.
        mode: `hami-core`, `mig` or `mps`, as in HAMi's register annotation.
        healthy: whether new pods may be placed on it.
    """

    uuid: str
    index: int
    memory_mib: int
    cores: int = WHOLE_CORES
    slots: int = 10
    model: str = ""
    numa: int = 0
    mode: str = "hami-core"
    healthy: bool = True


class NodeInventory(msgspec.Struct, frozen=True):
    """The cards of one node, in the order of their indexes.

    Attributes:
        node: its name.
        cards: the cards.
        pair_scores: how well two cards are connected, by their UUIDs; higher is better, absent is 0.
    """

    node: str
    cards: tuple[Card, ...]
    pair_scores: Mapping[str, Mapping[str, int]] = {}

    def pair_score(self, one: int, other: int) -> int:
        """Answer how well the cards at two positions are connected."""
        return self.pair_scores.get(self.cards[one].uuid, {}).get(self.cards[other].uuid, 0)
