"""The cards of each node: as its agent reports them, else as its register annotation says, else a rejection."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.isolation import Isolation
from allocation.models import rated
from allocation.names import HAMI_REGISTER
from allocation.node_isolation import NodeIsolation
from allocation.quantity import INT32_MAX
from allocation.reasons import NodeReason, NodeRejection
from allocation.wire import hami
from scheduler.filters.node_rejections import NodeRejections

log = logging.getLogger(__name__)

_HAMI_CORE = NodeIsolation(frozenset({Isolation.HAMI_CORE}))
_UUID = re.compile(r"[^,:;\s]{1,253}")


class Cards(Protocol):
    """Where valid inventories go: the scheduler's ledger, or another count of the cards."""

    def inventory(self, node: str) -> NodeInventory | None:
        """Return the cards of a node."""

    def set_node(self, inventory: NodeInventory) -> None:
        """Replace the cards of a node; raise AllocationError if another node has one of them."""

    def drop_node(self, node: str) -> None:
        """Remove the cards of a node."""


class Inventories:
    """The inventories of all nodes; the ledger gets those that are valid.

    Attributes:
        rejections: the rejections by the nodes whose cards cannot be counted.
    """

    def __init__(
        self, ledger: Cards, *, models: Mapping[str, int], on_change: Callable[[str], object] = lambda _: None
    ) -> None:
        """Fill `ledger`; `on_change` is called with each node whose cards changed, came or went there.

        `models` are the TFLOPs of models that the configuration adds.
        """
        self._ledger = ledger
        self._models = models
        self._on_change = on_change
        self._reported: dict[str, NodeInventory] = {}
        self._registered: dict[str, NodeInventory] = {}
        self._unreadable: dict[str, NodeRejection] = {}
        self._refused: dict[str, NodeRejection] = {}
        self.rejections = NodeRejections()

    def report(self, node: str, inventory: NodeInventory | None) -> bool:
        """Set the report of an agent, or None for no report; return whether there are new cards to use."""
        if inventory is None:
            self._reported.pop(node, None)
        else:
            self._reported[node] = rated(inventory, self._models)
        return self._update(node)

    def register(self, node: str, text: str | None, scores: str = "") -> bool:
        """Set the register annotation of a node, or None for no annotation, with the scores of its links.

        Returns whether there are new cards to use.
        """
        self._registered.pop(node, None)
        before = self._unreadable.pop(node, None)
        if text is not None:
            try:
                self._registered[node] = rated(read(node, text, scores), self._models)
            except AllocationError as error:
                self._unreadable[node] = refused(error)
                if self._unreadable[node] != before:
                    log.warning("%s", error)
        return self._update(node)

    def _update(self, node: str) -> bool:
        """Offer the ledger the cards of `node`, and of the nodes that were refused because of a card of `node`."""
        others = [other for other in self._refused if other != node]
        is_taken = self._offer(node)
        for other in others:
            is_taken |= self._offer(other)
        return is_taken

    def _offer(self, node: str) -> bool:
        """Offer the ledger the cards of a node, or close the node; return whether there are new cards to use."""
        is_taken = self._is_taken(node)
        unreadable = self._unreadable.get(node) if node not in self._reported else None
        self.rejections.set(node, self._refused.get(node) or unreadable)
        return is_taken

    def _is_taken(self, node: str) -> bool:
        inventory = self._reported.get(node) or self._registered.get(node)
        if inventory is not None and inventory == self._ledger.inventory(node):
            return False
        if inventory is None:
            self._refused.pop(node, None)
            self._drop(node)
            return False
        try:
            self._ledger.set_node(inventory)
        except AllocationError as error:
            self._drop(node)
            if self._refused.get(node) != refused(error):
                log.error("%s", error)  # noqa: TRY400 -- the message says it all
            self._refused[node] = refused(error)
            return False
        self._refused.pop(node, None)
        self._on_change(node)
        return True

    def _drop(self, node: str) -> None:
        had_cards = self._ledger.inventory(node) is not None
        self._ledger.drop_node(node)
        if had_cards:
            self._on_change(node)


def refused(error: AllocationError) -> NodeRejection:
    """Return the rejection by a node whose cards cannot be counted because of `error`."""
    return NodeRejection(NodeReason.InventoryRefused, str(error), resolvable=False)


def read(node: str, text: str, scores: str = "") -> NodeInventory:
    """Read a register annotation, which the API server does not validate.

    Raises:
        AllocationError: it is malformed, or describes an impossible card.
    """
    inventory = hami.decode_register(node, text, scores)
    for card in inventory.cards:
        amounts = (card.index, card.memory_mib, card.cores, card.slots, card.numa + 1)  # -1 means no NUMA node
        if not _UUID.fullmatch(card.uuid) or not all(0 <= amount <= INT32_MAX for amount in amounts):
            raise AllocationError(
                f"node {node}, annotation {HAMI_REGISTER}: no card is {card.uuid!r} with index {card.index}, "
                f"{card.memory_mib} MiB, {card.cores} millicards, {card.slots} slots and NUMA node {card.numa}"
            )
    if any(card.mode == Isolation.HAMI_CORE for card in inventory.cards):  # its plugin loads the library
        return msgspec.structs.replace(inventory, isolation=_HAMI_CORE)
    return inventory
