"""Which cards a node has: what its agent reports, else what its register annotation says, else why neither counts."""

import logging
import re

from allocation import hami
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.names import HAMI_REGISTER
from allocation.quantity import INT32_MAX

log = logging.getLogger(__name__)

_UUID = re.compile(r"[^,:;\s]{1,253}")


class Inventories:
    """What is known of every node's cards; the ledger has of it what can be believed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reported: dict[str, NodeInventory] = {}
        self._registered: dict[str, NodeInventory] = {}
        self._unreadable: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    @property
    def refusals(self) -> dict[str, str]:
        """Answer the nodes whose cards cannot be counted, and why."""
        return {node: text for node, text in self._unreadable.items() if node not in self._reported} | self._refused

    def report(self, node: str, inventory: NodeInventory | None) -> bool:
        """Take what an agent of ours reports, None where it reports nothing; answer whether there are cards to use."""
        if inventory is None:
            self._reported.pop(node, None)
        else:
            self._reported[node] = inventory
        return self._update(node)

    def register(self, node: str, text: str | None, scores: str = "") -> bool:
        """Take a node's register annotation, None where it has none, and the scores of its links beside it.

        Answers whether there are cards to use.
        """
        self._registered.pop(node, None)
        error = self._unreadable.pop(node, "")
        if text is not None:
            try:
                self._registered[node] = read(node, text, scores)
            except AllocationError as problem:
                self._unreadable[node] = str(problem)
                if self._unreadable[node] != error:
                    log.warning("%s", problem)
        return self._update(node)

    def _update(self, node: str) -> bool:
        """Give the ledger what it may have now of `node`, and of those that were refused for a card that it had."""
        others = [other for other in self._refused if other != node]
        is_taken = self._offer(node)
        for other in others:
            is_taken |= self._offer(other)
        return is_taken

    def _offer(self, node: str) -> bool:
        inventory = self._reported.get(node) or self._registered.get(node)
        if inventory is not None and inventory == self._ledger.inventory(node):
            return False
        if inventory is None:
            self._refused.pop(node, None)
            self._ledger.drop_node(node)
            return False
        try:
            self._ledger.set_node(inventory)
        except AllocationError as problem:
            self._ledger.drop_node(node)
            if self._refused.get(node) != str(problem):
                log.error("%s", problem)  # noqa: TRY400 -- the message says it all
            self._refused[node] = str(problem)
            return False
        self._refused.pop(node, None)
        return True


def read(node: str, text: str, scores: str = "") -> NodeInventory:
    """Read a register annotation, which nobody but its writer has checked.

    Raises:
        AllocationError: it is malformed, or no card can be what it says.
    """
    inventory = hami.decode_register(node, text, scores)
    for card in inventory.cards:
        amounts = (card.index, card.memory_mib, card.cores, card.slots, card.numa + 1)  # -1 is no NUMA node
        if not _UUID.fullmatch(card.uuid) or not all(0 <= amount <= INT32_MAX for amount in amounts):
            raise AllocationError(
                f"node {node}, annotation {HAMI_REGISTER}: no card is {card.uuid!r} with index {card.index}, "
                f"{card.memory_mib} MiB, {card.cores} millicards, {card.slots} slots and NUMA node {card.numa}"
            )
    return inventory
