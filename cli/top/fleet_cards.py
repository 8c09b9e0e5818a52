"""The cards of all nodes and their use, in plain numbers: what the scheduler's ledger keeps as columns for deciding.

`top` counts once and decides nothing, so it does not need numpy, which the ledger does. A test compares the two.
"""

from collections.abc import Iterable

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory

Use = list[int]
"""MiB, millicards and slots in use."""


class FleetCards:
    """The inventory of each node; every card belongs to one node."""

    def __init__(self) -> None:
        self._inventories: dict[str, NodeInventory] = {}
        self._owners: dict[str, str] = {}

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes with an inventory."""
        return self._inventories.keys()

    def inventory(self, node: str) -> NodeInventory | None:
        """Return the cards of `node`."""
        return self._inventories.get(node)

    def set_node(self, inventory: NodeInventory) -> None:
        """Replace the cards of a node.

        Raises:
            AllocationError: another node has reported one of the cards, or the report has a card twice.
        """
        uuids: set[str] = set()
        for card in inventory.cards:
            owner = inventory.node if card.uuid in uuids else self._owners.get(card.uuid)
            if card.uuid in uuids or owner not in (None, inventory.node):
                raise AllocationError(
                    f"node {inventory.node} reports card {card.uuid}, which node {owner} has already reported"
                )
            uuids.add(card.uuid)
        self.drop_node(inventory.node)
        self._inventories[inventory.node] = inventory
        self._owners.update(dict.fromkeys(uuids, inventory.node))

    def drop_node(self, node: str) -> None:
        """Remove a node's cards."""
        removed = self._inventories.pop(node, None)
        for card in removed.cards if removed is not None else ():
            del self._owners[card.uuid]


def use_of(inventory: NodeInventory, charges: Iterable[Charge]) -> dict[str, Use]:
    """Return the use of each card of a node by UUID, if its pods hold `charges`.

    A card that a pod has alone is in full use. An instance is also charged to its card. A pod whose card was put into
    MIG mode under it may see any instance, so it is charged all of them.
    """
    use = {card.uuid: [0, 0, 0] for card in inventory.cards}
    sizes = {card.uuid: (card.memory_mib, card.cores, card.slots) for card in inventory.cards}
    enabled = {card.uuid for card in inventory.cards if card.is_mig_enabled}
    for charge in charges:
        amounts = (charge.memory_mib, charge.cores, charge.slots)
        for uuid in (charge.uuid, charge.parent) if charge.parent else (charge.uuid,):
            _add(use, uuid, sizes.get(uuid, amounts) if charge.whole else amounts)
        if charge.uuid in enabled and not charge.parent:
            for card in inventory.cards:
                if card.parent == charge.uuid:
                    _add(use, card.uuid, sizes[card.uuid])
    return use


def _add(use: dict[str, Use], uuid: str, amounts: Iterable[int]) -> None:
    if uuid in use:
        use[uuid] = [held + amount for held, amount in zip(use[uuid], amounts, strict=True)]
