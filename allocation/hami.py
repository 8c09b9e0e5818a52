"""HAMi's two wire formats: the node's register annotation and the pod's allocation string (hami.md 1.1, 1.2)."""

from collections.abc import Sequence

import msgspec

from allocation.allocation import Allocation
from allocation.errors import MalformedRecordError
from allocation.inventory import Card, NodeInventory
from allocation.names import HAMI_REGISTER
from allocation.request import MILLI_PER_PERCENT, PodRequest

DEVICE_WORD = "NVIDIA"


class _Registered(msgspec.Struct, omit_defaults=True):
    """One card; HAMi omits zero values, so a missing health means unhealthy and a missing index 0."""

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


_register_decoder = msgspec.json.Decoder(list[_Registered])
_encoder = msgspec.json.Encoder()


def encode_register(inventory: NodeInventory) -> str:
    """Answer the register annotation, sorted by index so that equal inventories give equal text."""
    return _encoder.encode(
        [
            _Registered(
                id=card.uuid,
                index=card.index,
                count=card.slots,
                devmem=card.memory_mib,
                devcore=card.cores // MILLI_PER_PERCENT,
                type=card.model,
                numa=card.numa,
                mode=card.mode,
                health=card.healthy,
            )
            for card in sorted(inventory.cards, key=lambda card: card.index)
        ]
    ).decode()


def decode_register(node: str, text: str) -> NodeInventory:
    """Read a register annotation.

    Raises:
        MalformedRecordError: it is not the JSON that HAMi writes.
    """
    try:
        cards = _register_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise MalformedRecordError(f"node {node}, annotation {HAMI_REGISTER}: {error}") from None
    return NodeInventory(
        node,
        tuple(
            Card(
                uuid=card.id,
                index=card.index,
                memory_mib=card.devmem,
                cores=card.devcore * MILLI_PER_PERCENT,
                slots=card.count,
                model=card.type,
                numa=card.numa,
                mode=card.mode or "hami-core",
                healthy=card.health,
            )
            for card in sorted(cards, key=lambda card: card.index)
        ),
    )


Device = tuple[str, int, int]
"""UUID, MiB, percent of the card's cores."""


def encode_devices(containers: Sequence[Sequence[Device]]) -> str:
    """Answer an allocation string: every container of the pod, in order, ends with `;`, an empty one included."""
    return "".join(
        "".join(f"{uuid},{DEVICE_WORD},{memory},{cores}:" for uuid, memory, cores in devices) + ";"
        for devices in containers
    )


def decode_devices(text: str) -> list[list[Device]]:
    """Read an allocation string; an entry with an empty UUID is HAMi's old word for no device.

    Raises:
        MalformedRecordError: an entry has too few fields, or a field that is no number.
    """
    containers = text.split(";")
    if containers[-1].strip() == "":
        containers.pop()
    return [
        [device for entry in container.split(":") if "," in entry and (device := _decode_device(entry))[0]]
        for container in containers
    ]


def allocation_string(allocation: Allocation, request: PodRequest) -> str:
    """Answer the allocation string of a pod, with a place for each of its containers.

    HAMi knows whole percents only; a fraction of one is rounded up.
    """
    return encode_devices(
        [
            [
                (share.uuid, share.memory_mib, -(-share.cores // MILLI_PER_PERCENT))
                for share in allocation.containers.get(container.name, ())
            ]
            for container in request.containers
        ]
    )


def _decode_device(entry: str) -> Device:
    fields = entry.split(",")
    try:
        return fields[0], int(fields[2]), int(fields[3])
    except (IndexError, ValueError):
        raise MalformedRecordError(f"allocation string entry {entry!r} is not UUID,TYPE,MIB,CORES") from None
