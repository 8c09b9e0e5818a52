"""What an agent reports: read, believed or refused by the ledger, and said again as it was."""

import json

import msgspec

from allocation.ledger import Ledger
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.reflector import SURVIVED
from fuzz.validity import is_valid
from scheduler.inventories import Inventories

_decoder = msgspec.json.Decoder(GpuNodeStatus)


def try_bytes(data: bytes) -> None:
    """Read `data` as a GpuNodeStatus."""
    try:
        found = _decoder.decode(data)
        if not is_valid({**json.loads(data), "kind": "GpuNodeStatus"}):
            return
    except (*SURVIVED, ValueError):
        return
    name, inventory = found.metadata.name, found.inventory()
    said = GpuNodeStatus(found.metadata, status_of(inventory)).inventory()
    assert [card.uuid for card in said.cards] == [card.uuid for card in inventory.cards]
    ledger = Ledger()
    known = Inventories(ledger)
    known.report(name, inventory)
    assert (ledger.inventory(name) is None) == (name in known.refusals)
    known.report(name, None)
    assert not ledger.nodes
