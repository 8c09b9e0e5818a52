"""The cards of a node, as its agent reports them."""

from collections.abc import Sequence

import msgspec

from allocation.fabric import NO_FABRIC, Fabric
from allocation.mig import MODE, Creator, MigInstance, MigProfile
from allocation.node_isolation import NO_ISOLATION, NodeIsolation
from allocation.topology import layout
from allocation.topology.layout import CardLinks, Layout

WHOLE_CORES = 1000
MOST_UNDIVIDED = 128
"""Cards of one node whose connections are evaluated: there is a value for each pair, and no machine has more cards."""
CARD_MODES = ("hami-core", "mig", "mps")


class Card(msgspec.Struct, frozen=True):
    """One GPU, or one MIG instance of a GPU, which is a card of its own that one container takes whole.

    Attributes:
        uuid: NVML's UUID, unique in the cluster.
        index: NVML's index on its node; an instance has the index of its card.
        memory_mib: device memory, rounded down.
        cores: compute in millicards; 1000 is one whole card.
        slots: how many containers can share it.
        model: the name that NVML reports.
        numa: NUMA node; -1 if unknown.
        mode: `hami-core`, `mig` or `mps`, as in HAMi's register annotation.
        healthy: whether new pods can be placed on it.
        instance: its properties as a MIG instance; None for a physical card.
        mig_profiles: the profiles that a card in MIG mode offers.
        instances_by: the creator of the instances of a card in MIG mode; HAMi's plugin if not reported.
        tflops: of a whole card of its model (`allocation.models`); 0 if they are not known.
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
    tflops: int = 0

    @property
    def is_mig_enabled(self) -> bool:
        """Whether it is a physical card in MIG mode, of which pods get only instances."""
        return self.instance is None and self.mode == MODE

    @property
    def is_undivided(self) -> bool:
        """Whether it is a physical card that is not in MIG mode, so that links to other cards can be used."""
        return self.instance is None and self.mode != MODE

    @property
    def parent(self) -> str:
        """The UUID of the card that it is an instance of; empty for a physical card."""
        return self.instance.parent if self.instance is not None else ""


class Platform(msgspec.Struct, frozen=True, cache_hash=True):
    """What pods may demand of a node other than its cards; nodes of one machine type have equal ones."""

    fabric: Fabric = NO_FABRIC
    isolation: NodeIsolation = NO_ISOLATION


class NodeInventory(msgspec.Struct, frozen=True):
    """The cards of one node, in the order of their indexes; the instances of a card follow it.

    Attributes:
        node: its name.
        cards: its cards.
        links: the connections of its undivided cards (`Card.is_undivided`), in their order; None if only their NUMA
            nodes are known.
        fabric: the adapters and the storage path of the node.
        isolation: what can enforce the limits of containers that share a card.
    """

    node: str
    cards: tuple[Card, ...]
    links: Layout | None = None
    fabric: Fabric = NO_FABRIC
    isolation: NodeIsolation = NO_ISOLATION

    @property
    def platform(self) -> Platform:
        """What pods may demand of it other than its cards."""
        return Platform(self.fabric, self.isolation)

    @property
    def layout(self) -> Layout:
        """The connections of its undivided cards."""
        return self.links if self.links is not None else unlinked(self.cards)


def unlinked(cards: Sequence[Card]) -> Layout:
    """Return the layout of the undivided among `cards` if only their NUMA nodes are known."""
    return layout.of_links(tuple(CardLinks(card.index, card.numa) for card in cards if card.is_undivided))
