"""The cards of a node as an agent reports them."""

from collections.abc import Mapping

import msgspec

from allocation.mig import MODE, Creator, MigInstance, MigProfile

WHOLE_CORES = 1000
CARD_MODES = ("hami-core", "mig", "mps")


class Card(msgspec.Struct, frozen=True):
    """One GPU, or one MIG instance of a GPU: a unit of its own, which one container takes whole.

    Attributes:
        uuid: NVML's UUID, unique in the cluster.
        index: NVML's index on its node; an instance has its card's.
        memory_mib: device memory, rounded down.
        cores: compute in millicards; 1000 is one whole card.
        slots: how many containers may share it.
        model: NVML's name.
        numa: NUMA node; 0 where unknown.
        mode: `hami-core`, `mig` or `mps`, as in HAMi's register annotation.
        healthy: whether new pods may be placed on it.
        instance: what it is an instance of; None for a physical card.
        mig_profiles: of a card in MIG mode: the instances that it can have.
        instances_by: of a card in MIG mode: who makes its instances; HAMi's plugin where nobody said.
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
    instance: MigInstance | None = None
    mig_profiles: tuple[MigProfile, ...] = ()
    instances_by: Creator = "plugin"

    @property
    def is_divided(self) -> bool:
        """Whether it is a physical card in MIG mode, of which only instances are given to pods."""
        return self.instance is None and self.mode == MODE

    @property
    def parent(self) -> str:
        """Answer the UUID of the card that it is an instance of, empty for a physical card."""
        return self.instance.parent if self.instance is not None else ""


class NodeInventory(msgspec.Struct, frozen=True):
    """The cards of one node, in the order of their indexes; instances stand with their card.

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
