"""The cards that are bound to a pod's application, and what the pod gets of each (docs/gpubindings.md)."""

from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from allocation import names
from allocation.allocation import Allocation
from allocation.bindings.binding import AppIdentity, ShareMode
from allocation.bindings.grants import Grant
from allocation.request import WHOLE_CARD, ContainerRequest

ConsumePolicy = Literal["all", "single"]


def consume_policy(labels: Mapping[str, str], annotations: Mapping[str, str]) -> ConsumePolicy:
    """Return how many of the cards a pod gets: `all` of one node, or as many as it requests for any other value."""
    text = labels.get(names.CONSUME_POLICY) or annotations.get(names.CONSUME_POLICY) or "all"
    return "all" if text == "all" else "single"


class BoundCard(msgspec.Struct, frozen=True):
    """A card that is bound to the application of a pod.

    Attributes:
        grant: the card, and the memory that its binding sets.
        mode: how pods share the card.
        consumers: the other live pods of the application that have the card, as namespace/name.
        is_instance: whether the pod gets an instance of the card by its GpuClaim, which is given as the claim says.
    """

    grant: Grant
    mode: ShareMode = "time-slicing"
    consumers: tuple[str, ...] = ()
    is_instance: bool = False

    @property
    def uuid(self) -> str:
        """The UUID of the card; a card in MIG mode stands for its instances."""
        return self.grant.card

    def request(self, container: ContainerRequest) -> ContainerRequest:
        """Return what a container requests of this card: the binding and the share mode decide about the memory.

        A container that has whole cards by its GpuClaim keeps the whole card, and the binding limits its memory.
        """
        if self.is_instance:
            return container
        memory = self.grant.memory_mib
        if container.whole:
            if memory is None:
                return container
            return msgspec.structs.replace(container, memory_mib=memory, memory_percent=0)
        if self.mode == "exclusive":
            return msgspec.structs.replace(container, memory_mib=None, memory_percent=100, whole=True)
        if self.mode == "time-slicing":
            memory = 0
        return container if memory is None else _slice(container, memory)


def _slice(container: ContainerRequest, memory_mib: int) -> ContainerRequest:
    """Return the request for a part of a card; one for a whole card does not keep all cores from the other parts."""
    asks_whole_card = container.memory_percent == 100 and container.cores == WHOLE_CARD
    cores = 0 if asks_whole_card else container.cores
    return msgspec.structs.replace(container, memory_mib=memory_mib, memory_percent=0, cores=cores)


class BoundCards(msgspec.Struct, frozen=True):
    """The cards that are bound to the application of a pod, on all nodes.

    Attributes:
        identity: the application.
        policy: how many of them the pod gets.
        cards: the cards, by UUID.
    """

    identity: AppIdentity
    policy: ConsumePolicy
    cards: tuple[BoundCard, ...]

    def among(self, allocation: Allocation) -> Self:
        """Return the cards that an allocation contains."""
        used = {share.parent or share.uuid for shares in allocation.containers.values() for share in shares}
        return msgspec.structs.replace(self, cards=tuple(card for card in self.cards if card.uuid in used))
