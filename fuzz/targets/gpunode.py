"""GpuNodeStatus: the ledger accepts or rejects each readable report, and encoding it round-trips."""

import json

import msgspec

from allocation.delivery import DELIVERIES
from allocation.ledger.ledger import Ledger
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.informer import SURVIVED
from fuzz.validity import is_valid
from scheduler.state.deliveries import Deliveries
from scheduler.state.inventories import Inventories

_decoder = msgspec.json.Decoder(GpuNodeStatus)


def try_bytes(data: bytes) -> None:
    """Read `data` as a GpuNodeStatus."""
    try:
        decoded = _decoder.decode(data)
        if not is_valid({**json.loads(data), "kind": "GpuNodeStatus"}):
            return
    except (*SURVIVED, ValueError):
        return
    name, inventory = decoded.metadata.name, decoded.inventory()
    encoded = GpuNodeStatus(decoded.metadata, status_of(inventory)).inventory()
    assert [card.uuid for card in encoded.cards] == [card.uuid for card in inventory.cards]
    ledger = Ledger()
    inventories = Inventories(ledger, models={})
    inventories.report(name, inventory)
    assert (ledger.inventory(name) is None) == (name in inventories.rejections)
    inventories.report(name, None)
    assert not ledger.nodes
    deliveries = Deliveries()
    deliveries.set_status(decoded)
    assert deliveries.of(name) in DELIVERIES
    deliveries.drop(name)
    assert not deliveries.rejections
