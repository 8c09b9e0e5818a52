"""The cards of a node in a fleet file: a compact form for identical cards, a list, or a list with keys for the node.

    {count: 8, memoryMiB: 81920, model: NVIDIA H100 80GB HBM3, numa: [0, 0, 0, 0, 1, 1, 1, 1]}
    [{index: 0, memoryMiB: 40960}, {index: 1, memoryMiB: 40960, healthy: false}]
    {cards: [{index: 0, memoryMiB: 40960}, {index: 1, memoryMiB: 40960}], links: [[0, 1, 50]]}

Nothing is guessed: an unknown key, a value of the wrong type and a repeated card are errors.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent.declared import keys, mig_declaration
from agent.declared.connections import connect
from agent.declared.keys import Key
from agent.inventory import UUID
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.inventory import CARD_MODES, Card
from allocation.request import MILLI_PER_PERCENT
from allocation.topology.layout import NUMA_UNKNOWN

_MOST_CARDS: Final = 1024  # the limit of the GpuNodeStatus CRD
_MOST_PERCENT: Final = 10_000  # the limit of `agent.core_scaling`, in percent
_MOST_PCIE_GROUPS: Final = 4
_UNHEALTHY: Final = "declared unhealthy in the fleet file"
_MISSING: Final = "declared missing in the fleet file"


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None


def _is_pcie(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_PCIE_GROUPS and all(map(keys.whole(0).accepts, value))


_UUID_TEXT: Final = Key("it must be a string without spaces, commas, colons and semicolons", _is_uuid, optional=True)
_COMMON: Final = {
    "memoryMiB": keys.whole(1),
    "slots": keys.whole(1, default=10),
    "cores": keys.whole(1, _MOST_PERCENT, default=100),
    "model": keys.text(),
    "bandwidthGBps": keys.whole(0, default=0),
    "mode": keys.one_of(*CARD_MODES, default="hami-core"),
    "instances": keys.list_of("MIG instances"),
    "instancesBy": keys.one_of("administrator", "agent", default="administrator"),
}
_OF_EACH_CARD: Final = {
    "island": keys.text(),
    "numa": keys.whole(0, default=NUMA_UNKNOWN),
    "pcieGroups": Key(f"it must be a list of at most {_MOST_PCIE_GROUPS} card indexes", _is_pcie, ()),
}
_LISTED: Final = {
    "index": keys.whole(0),
    "uuid": _UUID_TEXT,
    "healthy": keys.boolean(default=True),
    "missing": keys.boolean(default=False),
    **_COMMON,
    **_OF_EACH_CARD,
}
_OF_NODE: Final = {
    "links": keys.list_of("links such as [0, 1, 50]"),
    "delivery": keys.mapping(),
    "fabric": keys.mapping(),
    "isolation": keys.list_of("isolations such as cuda"),
}
_CARDS: Final = {"cards": keys.list_of("cards", _MOST_CARDS), **_OF_NODE}
_COMPACT: Final = {
    "count": keys.whole(1, _MOST_CARDS),
    "uuidPrefix": _UUID_TEXT,
    "unhealthy": keys.list_of("card indexes"),
    **_COMMON,
    **{name: keys.per_card(key) for name, key in _OF_EACH_CARD.items()},
    **_OF_NODE,
}
_EXAMPLE: Final = "{count: 8, memoryMiB: 81920}"
_EXAMPLE_CARD: Final = "{index: 0, memoryMiB: 81920}"


def read_cards(declared: object, *, node: str, place: str) -> tuple[DeviceReport, ...]:
    """Return the cards that `declared` lists for `node`, in the order of their indexes.

    A card without a UUID gets `GPU-<node>-<index>` in every form, so that the file can change from one form to another
    while every pod keeps its cards. `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: a key is unknown or has an invalid value.
    """
    if isinstance(declared, Mapping) and "cards" in declared:
        fields = keys.read(declared, _CARDS, place=place, example=_EXAMPLE)
        return connect(_listed(fields["cards"], node=node, place=f"{place}.cards"), fields["links"], place=place)
    if isinstance(declared, Mapping):
        fields = keys.read(declared, _COMPACT, place=place, example=_EXAMPLE)
        return connect(tuple(_compact(fields, node=node, place=place)), fields["links"], place=place)
    if isinstance(declared, list) and len(declared) <= _MOST_CARDS:
        return connect(_listed(declared, node=node, place=place), (), place=place)
    raise InvalidFieldError(
        field=place,
        value=declared,
        expected=f"it must be a mapping with count and memoryMiB or with cards, or a list of up to {_MOST_CARDS} cards",
        remedy=f"write for example {_EXAMPLE}",
    )


def _compact(fields: Mapping[str, Any], *, node: str, place: str) -> Iterator[DeviceReport]:
    count = fields["count"]
    for index in fields["unhealthy"]:
        if not keys.whole(0, count - 1).accepts(index):
            raise InvalidFieldError(
                field=f"{place}.unhealthy",
                value=index,
                expected=f"the node has the cards 0 to {count - 1}",
                remedy="use existing indexes",
            )
    values = {name: _per_card(fields, name, key, place=place) for name, key in _OF_EACH_CARD.items()}
    prefix = fields["uuidPrefix"] or f"GPU-{node}"
    for index in range(count):
        own = {**fields, **{name: each[index] for name, each in values.items()}}
        card = _card(own, index=index, uuid=f"{prefix}-{index}", healthy=index not in fields["unhealthy"])
        yield from mig_declaration.declared_devices(card, own, place=place)


def _per_card(fields: Mapping[str, Any], name: str, key: Key, *, place: str) -> list[Any]:
    """Return the value of each card, of a key that has one value for all or a list."""
    value, count = fields[name], fields["count"]
    if not isinstance(value, list) or key.accepts(value):
        return [value] * count
    if len(value) != count:
        raise InvalidFieldError(
            field=f"{place}.{name}",
            value=value,
            expected=f"a list must have a value for each of the {count} cards",
            remedy="add or remove values, or write one value for all cards",
        )
    return value


def _listed(declared: list[Any], *, node: str, place: str) -> tuple[DeviceReport, ...]:
    cards: dict[int, tuple[DeviceReport, ...]] = {}
    for position, item in enumerate(declared):
        here = f"{place}[{position}]"
        fields = keys.read(item, _LISTED, place=here, example=_EXAMPLE_CARD)
        index = fields["index"]
        if index in cards:
            raise InvalidFieldError(
                field=f"{here}.index",
                value=index,
                expected="another card of the node has this index",
                remedy="give each card a different index",
            )
        card = _card(fields, index=index, uuid=fields["uuid"] or f"GPU-{node}-{index}", healthy=fields["healthy"])
        cards[index] = mig_declaration.declared_devices(card, fields, place=here)
    return tuple(device for index in sorted(cards) for device in cards[index])


def _card(fields: Mapping[str, Any], *, index: int, uuid: str, healthy: bool) -> DeviceReport:
    missing = fields.get("missing", False)
    message = _MISSING if missing else "" if healthy else _UNHEALTHY
    card = Card(
        uuid=uuid,
        index=index,
        memory_mib=fields["memoryMiB"],
        cores=fields["cores"] * MILLI_PER_PERCENT,
        slots=fields["slots"],
        model=fields["model"],
        numa=fields["numa"],
        mode=fields["mode"],
        healthy=not message,
    )
    return DeviceReport(
        card,
        fields["bandwidthGBps"],
        fields["island"],
        message,
        pcie_groups=tuple(fields["pcieGroups"]),
        missing=missing,
    )
