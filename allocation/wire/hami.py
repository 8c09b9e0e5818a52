"""HAMi's wire formats: the register and score annotations of nodes, allocation strings of pods (docs/hami.md)."""

from collections.abc import Sequence

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.errors import MalformedRecordError
from allocation.inventory import MOST_UNDIVIDED, Card, NodeInventory
from allocation.mig import MigProfile, Slices
from allocation.names import HAMI_REGISTER, HAMI_SCORES
from allocation.quantity import INT32_MAX
from allocation.request import MILLI_PER_PERCENT, PodRequest
from allocation.topology import layout

DEVICE_TYPE = "NVIDIA"
"""The type of every card in an allocation string, and the prefix of every model in a register annotation."""


class _Placement(msgspec.Struct):
    """The slices that an instance can have; HAMi omits zero values."""

    start: int = 0
    size: int = 0


class _Profile(msgspec.Struct, omit_defaults=True, rename={"memory_mb": "memoryMB", "slice_count": "sliceCount"}):
    """A kind of instance that a card in MIG mode offers."""

    name: str = ""
    memory_mb: int = 0
    core: int = 0
    slice_count: int = 0
    placements: tuple[_Placement, ...] = ()


class _Registered(msgspec.Struct, omit_defaults=True, rename={"mig_profiles": "migProfiles"}):
    """One card; HAMi omits zero values, so a missing health means unhealthy and a missing index means 0."""

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False
    mig_profiles: tuple[_Profile, ...] = ()


class _Scores(msgspec.Struct):
    """How well one card is linked to each other card of its node."""

    uuid: str
    score: dict[str, int] = {}


DEFAULT_MODE = "hami-core"
"""What is known of their connections grows with their square; a GpuClaim has no more cards either."""
_LINE_FIELDS = (7, 9)
_GO_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_register_decoder = msgspec.json.Decoder(list[_Registered])
_scores_decoder = msgspec.json.Decoder(list[_Scores])
_encoder = msgspec.json.Encoder()


def encode_register(inventory: NodeInventory) -> str:
    """Return the register annotation, sorted by index so that equal inventories give equal text.

    HAMi registers physical cards; a card in MIG mode is registered with its profiles instead of its instances.
    """
    return _encoder.encode(
        [
            _Registered(
                id=card.uuid,
                index=card.index,
                count=card.slots,
                devmem=card.memory_mib,
                devcore=card.cores // MILLI_PER_PERCENT,
                type=_registered_model(card.model),
                numa=max(card.numa, 0),  # HAMi writes 0 for a card whose NUMA node it does not know
                mode=card.mode,
                health=card.healthy,
                mig_profiles=tuple(_profile(profile) for profile in card.mig_profiles),
            )
            for card in sorted(inventory.cards, key=lambda card: card.index)
            if card.instance is None
        ]
    ).decode()


def _registered_model(model: str) -> str:
    """Return the model as HAMi's plugin writes it: its scheduler counts only models that begin with NVIDIA."""
    return model if model.startswith(DEVICE_TYPE) else f"{DEVICE_TYPE}-{model}".rstrip("-")


def decode_register(node: str, text: str, scores: str = "") -> NodeInventory:
    """Read a register annotation, in JSON or in the older comma-separated form, and the score annotation.

    Raises:
        MalformedRecordError: one of them cannot be read.
    """
    key = HAMI_REGISTER
    try:
        cards = _register_decoder.decode(text) if text.lstrip().startswith("[") else _decode_lines(text)
        key = HAMI_SCORES
        pairs = {entry.uuid: entry.score for entry in _scores_decoder.decode(scores)} if scores else {}
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedRecordError(f"node {node}, annotation {key}: {error}") from None
    if len(cards) > MOST_UNDIVIDED:
        raise MalformedRecordError(
            f"node {node}, annotation {HAMI_REGISTER}: it has {len(cards)} cards, {MOST_UNDIVIDED} is the limit"
        )
    inventory = NodeInventory(node, tuple(_card(card) for card in sorted(cards, key=lambda card: card.index)))
    if not pairs:
        return inventory
    undivided = [(card.uuid, card.index, card.numa) for card in inventory.cards if card.is_undivided]
    return msgspec.structs.replace(inventory, links=layout.of_scores(undivided, pairs))


def _card(card: _Registered) -> Card:
    return Card(
        uuid=card.id,
        index=card.index,
        memory_mib=card.devmem,
        cores=card.devcore * MILLI_PER_PERCENT,
        slots=card.count,
        model=card.type,
        numa=card.numa,
        mode=card.mode or DEFAULT_MODE,
        healthy=card.health,
        mig_profiles=tuple(
            MigProfile(
                profile.name,
                profile.memory_mb,
                profile.core * MILLI_PER_PERCENT,
                profile.slice_count,
                tuple(Slices(each.start, each.size) for each in profile.placements),
            )
            for profile in card.mig_profiles
        ),
    )


def _profile(profile: MigProfile) -> _Profile:
    return _Profile(
        profile.name,
        profile.memory_mib,
        profile.cores // MILLI_PER_PERCENT,
        profile.slice_count,
        tuple(_Placement(each.start, each.size) for each in profile.placements),
    )


def _decode_lines(text: str) -> list[_Registered]:
    """Read `uuid,count,MiB,cores,type,numa,health[,index,mode]:` for each card; the index defaults to its position."""
    cards = []
    for position, entry in enumerate(part for part in text.strip().split(":") if part):
        fields = entry.split(",")
        if len(fields) not in _LINE_FIELDS:
            raise ValueError(f"{entry!r} has {len(fields)} fields, not 7 or 9")
        if fields[6] not in _GO_BOOLEANS:
            raise ValueError(f"{entry!r}: health is {fields[6]!r}, not true or false")
        uuid, count, memory, cores, model, numa = fields[:6]
        index, mode = (fields[7], fields[8]) if len(fields) == max(_LINE_FIELDS) else (str(position), "")
        cards.append(
            _Registered(
                id=uuid,
                index=int(index),
                count=int(count),
                devmem=int(memory),
                devcore=int(cores),
                type=model,
                numa=int(numa),
                mode=mode,
                health=_GO_BOOLEANS[fields[6]],
            )
        )
    return cards


UNKNOWN_INDEX = -1
Device = tuple[str, int, int]
"""UUID, MiB, percent of the card's cores."""


def encode_devices(containers: Sequence[Sequence[Device]]) -> str:
    """Return an allocation string: each container of the pod, in order, ends with `;`, even if it has no device."""
    return "".join(
        "".join(f"{uuid},{DEVICE_TYPE},{memory},{cores}:" for uuid, memory, cores in devices) + ";"
        for devices in containers
    )


def decode_devices(text: str) -> list[list[Device]]:
    """Read an allocation string; an entry with an empty UUID is HAMi's old notation for no device.

    Raises:
        MalformedRecordError: an entry has too few fields, or an invalid number.
    """
    containers = text.split(";")
    if containers[-1].strip() == "":
        containers.pop()
    return [
        [device for entry in container.split(":") if "," in entry and (device := _decode_device(entry))[0]]
        for container in containers
    ]


def allocation_string(allocation: Allocation, request: PodRequest) -> str:
    """Return the allocation string of a pod, with an entry for each of its containers.

    HAMi has only whole percents, so fractions are rounded up. The string identifies a MIG instance by its card; another
    annotation has the instance (`allocation.wire.mig_record`).
    """
    return encode_devices(
        [
            [
                (share.parent or share.uuid, share.memory_mib, share.cores_percent)
                for share in allocation.containers.get(container.name, ())
            ]
            for container in request.containers
        ]
    )


def read_allocation(text: str, request: PodRequest, *, node: str) -> Allocation:
    """Return the allocation of a pod on `node` that HAMi's scheduler placed.

    On nodes with real models, HAMi omits the entries of leading containers without a GPU (its issue 2899). If there are
    fewer or more entries than containers, the entries belong to the GPU containers, aligned from the end. An entry that
    is left over counts under a name that no container has, so that no entry is lost. The string does not contain the
    indexes of the cards.

    Raises:
        MalformedRecordError: the string cannot be read.
    """
    entries = decode_devices(text)
    if len(entries) == len(request.containers):
        pairs = [(container.name, entry) for container, entry in zip(request.containers, entries, strict=True) if entry]
    else:
        filled = [entry for entry in entries if entry]
        names = [container.name for container in request.gpu_containers][-len(filled) :] if filled else []
        unnamed = [f"?{position}" for position in range(len(filled) - len(names))]
        pairs = list(zip((*unnamed, *names), filled, strict=True))
    return Allocation(
        node,
        {
            name: tuple(
                CardShare(uuid, UNKNOWN_INDEX, memory, cores * MILLI_PER_PERCENT) for uuid, memory, cores in devices
            )
            for name, devices in pairs
        },
    )


def _decode_device(entry: str) -> Device:
    fields = entry.split(",")
    try:
        memory_mib, percent = int(fields[2]), int(fields[3])
    except (IndexError, ValueError):
        raise MalformedRecordError(f"allocation string entry {entry!r} is not UUID,TYPE,MIB,CORES") from None
    if not (0 <= memory_mib <= INT32_MAX and 0 <= percent <= INT32_MAX):
        raise MalformedRecordError(f"allocation string entry {entry!r}: amounts must be from 0 to {INT32_MAX}")
    return fields[0], memory_mib, percent
