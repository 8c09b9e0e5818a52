"""MIG in the model: an agent divides a card into the instances that the scheduler requests for pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from allocation.inventory import NodeInventory
from cluster.gpu_node_status import status_of
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.model import books
from tests.scheduler.model.books import Size
from tests.scheduler.model.machine import Machine
from tests.scheduler.support.node_manifests import of_node

if TYPE_CHECKING:
    from allocation.inventory import Card

NODE = "m"
CARD = mig_card(0, node=NODE, by="agent")


class Instances(Machine):
    """There is a third node, or not."""

    def __init__(self) -> None:
        super().__init__()
        self._instances: dict[str, Card] | None = None

    @initialize(is_there=st.booleans())
    def divide(self, *, is_there: bool) -> None:
        """Its card is in MIG mode, and has no instance yet."""
        if is_there:
            self._instances = {}
            for plural, each in of_node(NODE, CARD, seconds=10**6):
                self.cluster.api.put(plural, each)

    @precondition(lambda self: self._instances is not None)
    @rule()
    def partition(self) -> None:
        """The agent creates what is requested, and destroys what is not requested any more and not in use."""
        assert self._instances is not None
        report = self.cluster.api.get_object("gpunodestatuses", NODE)
        requested = {each["id"]: each for each in report["spec"].get("migInstances", ())}
        used = {each.card for pod in self.cluster.placed for each in books.held(pod)}
        kept = {name: card for name, card in self._instances.items() if name in requested or card.uuid in used}
        for name, request in requested.items():
            start, size = request["placement"]["start"], request["placement"]["size"]
            if name not in kept and not any(_overlap(card, start, size) for card in kept.values()):
                kept[name] = instance(0, request["profile"], start, node=NODE, request_id=name)
        self.cluster.sizes |= {card.uuid: Size(card.memory_mib, 1) for card in kept.values()}
        self._instances = kept
        status = msgspec.to_builtins(status_of(NodeInventory(NODE, (CARD, *kept.values()))))
        self.cluster.api.put("gpunodestatuses", {**report, "status": status})
        self.look()


def _overlap(card: Card, start: int, size: int) -> bool:
    assert card.instance is not None
    slices = card.instance.slices
    return slices is not None and slices.start < start + size and start < slices.start + slices.size
