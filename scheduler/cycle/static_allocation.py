"""The rejections of a static allocation, which a person may have written: it must match the cards of its node."""

from collections.abc import Iterable

import msgspec

from allocation.allocation import Allocation, Charge
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import NodeInventory
from allocation.isolation import Isolation
from allocation.ledger.ledger import Ledger
from allocation.names import ALLOCATION
from allocation.placement import node_places
from allocation.placement.rejection import Rejection, of_node
from allocation.reasons import NodeReason, NodeRejection


def elsewhere(fixed: Allocation) -> Rejection:
    """Return the rejection by the nodes for which the allocation is not."""
    return _mismatch(f"static allocation is for node {fixed.node}")


def isolated(fixed: Allocation, isolation: Isolation) -> Allocation:
    """Return the allocation of a pod with an isolation, which the allocation itself need not name."""
    return fixed if fixed.isolation is not Isolation.NONE else msgspec.structs.replace(fixed, isolation=isolation)


def rejection(fixed: Allocation, cost: Iterable[Charge], ledger: Ledger, *, isolation: Isolation) -> Rejection | None:
    """Return the rejection by the node of the allocation.

    None if `ledger` has there what the allocation costs, and the node can enforce `isolation`, which is that of the
    pod, from which the environment of its containers is derived.
    """
    if fixed.isolation is not isolation:
        return _mismatch(f"annotation {ALLOCATION} has isolation {fixed.isolation}, and the pod has {isolation}")
    inventory = ledger.inventory(fixed.node)
    wrong = NodeReason.NodeUnregistered if inventory is None else _contradiction(fixed, inventory)
    if wrong:
        return _mismatch(f"static allocation on node {fixed.node}: {wrong}")
    if inventory is not None and (lacking := inventory.isolation.rejection(isolation)):
        return of_node(NodeRejection(NodeReason.IsolationUnavailable, lacking, resolvable=False))
    row = ledger.row(fixed.node)
    full = node_places.rejection(ledger, row) if row is not None else None
    if full is not None:
        return full
    try:
        ledger.check(fixed.node, cost)
    except AllocationError as error:
        message = f"static allocation on node {fixed.node}: {error}"
        return _mismatch(message, resolvable=isinstance(error, OverCapacityError))
    return None


def _mismatch(message: str, *, resolvable: bool = False) -> Rejection:
    return of_node(NodeRejection(NodeReason.StaticAllocationMismatch, message, resolvable))


def _contradiction(fixed: Allocation, inventory: NodeInventory) -> str:
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
