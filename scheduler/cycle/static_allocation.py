"""Checks that a static allocation, which a person may have written, matches the cards of its node."""

from allocation.allocation import Allocation
from allocation.inventory import NodeInventory
from allocation.names import ALLOCATION


def mismatch(fixed: Allocation, inventory: NodeInventory) -> str:
    """Return the first statement of `fixed` that contradicts the cards of its node, or an empty string.

    The index is written to `gpu.scheduling/allocated`, and memory and cores become limits of the containers: with a
    wrong value they would use another card than the one that is charged.
    """
    cards = {card.uuid: card for card in inventory.cards}
    for container, shares in fixed.containers.items():
        for share in shares:
            card = cards.get(share.uuid)
            if card is None:
                return f"annotation {ALLOCATION}, container {container}: node {fixed.node} has no card {share.uuid}"
            where = f"annotation {ALLOCATION}, container {container}: card {share.uuid} of node {fixed.node}"
            if card.is_mig_enabled:
                return f"{where} is in MIG mode, name one of its instances"
            if share.parent != card.parent:
                return f"{where} has parent {card.parent!r}, not {share.parent!r}"
            if share.index != card.index:
                return f"{where} has index {card.index}, not {share.index}"
            if share.memory_mib > card.memory_mib:
                return f"{where} has {card.memory_mib} MiB, not {share.memory_mib}"
            if share.cores > card.cores:
                return f"{where} has {card.cores} millicards, not {share.cores}"
    return ""
