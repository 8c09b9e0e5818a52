"""The cards of a node in a fleet file: a compact form for identical cards, or a list.

    {count: 8, memoryMiB: 81920, model: NVIDIA H100 80GB HBM3}
    [{index: 0, memoryMiB: 40960}, {index: 1, memoryMiB: 40960, healthy: false}]

Nothing is guessed: an unknown key, a value of the wrong type and a repeated card are errors.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from agent.declared import mig_declaration
from agent.inventory import UUID
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.inventory import CARD_MODES, Card
from allocation.quantity import INT32_MAX
from allocation.request import MILLI_PER_PERCENT

_CREATORS: Final = ("administrator", "agent")
_MOST_CARDS: Final = 1024  # the limit of the GpuNodeStatus CRD
_MOST_PERCENT: Final = 10_000  # the limit of `agent.core_scaling`, in percent
_UNHEALTHY: Final = "declared unhealthy in the fleet file"


class _Key(msgspec.Struct, frozen=True):
    """A key and its allowed values; it is required if its default is None, unless it is `optional`."""

    expected: str
    accepts: Callable[[Any], bool]
    default: Any = None
    optional: bool = False


def _whole(least: int, most: int = INT32_MAX, *, default: int | None = None) -> _Key:
    def accepts(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return _Key(f"it must be a whole number from {least} to {most}", accepts, default)


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 253


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None


_UUID_TEXT: Final = _Key("it must be a string without spaces, commas, colons and semicolons", _is_uuid, optional=True)
_COMMON: Final = {
    "memoryMiB": _whole(1),
    "slots": _whole(1, default=10),
    "cores": _whole(1, _MOST_PERCENT, default=100),
    "model": _Key("it must be a string", _is_short_text, ""),
    "island": _Key("it must be a string", _is_short_text, ""),
    "bandwidthGBps": _whole(0, default=0),
    "numa": _whole(0, default=0),
    "mode": _Key(f"it must be one of {', '.join(CARD_MODES)}", lambda value: value in CARD_MODES, "hami-core"),
    "instances": _Key("it must be a list of MIG instances", lambda value: isinstance(value, list), ()),
    "instancesBy": _Key(f"it must be one of {', '.join(_CREATORS)}", lambda value: value in _CREATORS, "administrator"),
}
_LISTED: Final = {
    "index": _whole(0),
    "uuid": _UUID_TEXT,
    "healthy": _Key("it must be true or false", lambda value: isinstance(value, bool), default=True),
    **_COMMON,
}
_COMPACT: Final = {
    "count": _whole(1, _MOST_CARDS),
    "uuidPrefix": _UUID_TEXT,
    "unhealthy": _Key("it must be a list of card indexes", lambda value: isinstance(value, list), ()),
    "delivery": _Key("it must be a mapping", lambda value: isinstance(value, Mapping), optional=True),
    **_COMMON,
}


def read_cards(declared: object, *, node: str, place: str) -> tuple[DeviceReport, ...]:
    """Return the cards that `declared` lists for `node`, in the order of their indexes.

    A card without a UUID gets `GPU-<node>-<index>` in both forms, so that the file can change from one form to the
    other while every pod keeps its cards. `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: a key is unknown or has an invalid value.
    """
    if isinstance(declared, Mapping):
        return _compact(declared, node=node, place=place)
    if isinstance(declared, list) and len(declared) <= _MOST_CARDS:
        return _listed(declared, node=node, place=place)
    raise InvalidFieldError(
        field=place,
        value=declared,
        expected=f"it must be a mapping with count and memoryMiB, or a list of at most {_MOST_CARDS} cards",
        remedy="write for example {count: 8, memoryMiB: 81920}",
    )


def _compact(declared: Mapping[Any, Any], *, node: str, place: str) -> tuple[DeviceReport, ...]:
    fields = _fields(declared, _COMPACT, place=place)
    count = fields["count"]
    for index in fields["unhealthy"]:
        if not _whole(0, count - 1).accepts(index):
            raise InvalidFieldError(
                field=f"{place}.unhealthy",
                value=index,
                expected=f"the node has the cards 0 to {count - 1}",
                remedy="use existing indexes",
            )
    prefix = fields["uuidPrefix"] or f"GPU-{node}"
    return tuple(
        device
        for index in range(count)
        for device in mig_declaration.declared_devices(
            _card(fields, index=index, uuid=f"{prefix}-{index}", healthy=index not in fields["unhealthy"]),
            fields,
            place=place,
        )
    )


def _listed(declared: list[Any], *, node: str, place: str) -> tuple[DeviceReport, ...]:
    cards: dict[int, tuple[DeviceReport, ...]] = {}
    for position, item in enumerate(declared):
        here = f"{place}[{position}]"
        if not isinstance(item, Mapping):
            raise InvalidFieldError(
                field=here,
                value=item,
                expected="a card must be a mapping",
                remedy="write for example {index: 0, memoryMiB: 81920}",
            )
        fields = _fields(item, _LISTED, place=here)
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
    card = Card(
        uuid=uuid,
        index=index,
        memory_mib=fields["memoryMiB"],
        cores=fields["cores"] * MILLI_PER_PERCENT,
        slots=fields["slots"],
        model=fields["model"],
        numa=fields["numa"],
        mode=fields["mode"],
        healthy=healthy,
    )
    return DeviceReport(card, fields["bandwidthGBps"], fields["island"], "" if healthy else _UNHEALTHY)


def _fields(declared: Mapping[Any, Any], keys: Mapping[str, _Key], *, place: str) -> dict[str, Any]:
    valid = f"the valid keys are {', '.join(sorted(keys))}"
    for name, value in declared.items():
        key = keys.get(name)
        if key is None:
            raise InvalidFieldError(field=f"{place}.{name}", value=value, expected="the key is unknown", remedy=valid)
        if not key.accepts(value):
            raise InvalidFieldError(
                field=f"{place}.{name}", value=value, expected=key.expected, remedy="correct the value"
            )
    for name, key in keys.items():
        if name not in declared and key.default is None and not key.optional:
            raise InvalidFieldError(field=f"{place}.{name}", value="", expected=key.expected, remedy="add the key")
    return {name: declared.get(name, key.default) for name, key in keys.items()}
