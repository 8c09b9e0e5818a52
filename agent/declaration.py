"""The cards of a node as a person writes them: a compact form for equal cards, a list for others.

    {count: 8, memoryMiB: 81920, model: NVIDIA H100 80GB HBM3}
    [{index: 0, memoryMiB: 40960}, {index: 1, memoryMiB: 40960, healthy: false}]

Nothing is guessed: an unknown key, a value of the wrong type and a card that stands twice are refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from agent.inventory import UUID
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.inventory import CARD_MODES, Card
from allocation.quantity import INT32_MAX
from allocation.request import MILLI_PER_PERCENT

_MOST_CARDS: Final = 1024  # as many as a GpuNodeStatus may hold
_MOST_PERCENT: Final = 10_000  # of a card that is scaled, as `agent.core_scaling` scales one
_UNHEALTHY: Final = "declared unhealthy in the fleet file"


class _Key(msgspec.Struct, frozen=True):
    """What a key may hold; one whose default is None must be given, unless it is `optional`."""

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


_UUID_TEXT: Final = _Key("it must be a text without spaces, commas, colons and semicolons", _is_uuid, optional=True)
_COMMON: Final = {
    "memoryMiB": _whole(1),
    "slots": _whole(1, default=10),
    "cores": _whole(1, _MOST_PERCENT, default=100),
    "model": _Key("it must be a text", _is_short_text, ""),
    "island": _Key("it must be a text", _is_short_text, ""),
    "bandwidthGBps": _whole(0, default=0),
    "numa": _whole(0, default=0),
    "mode": _Key(f"it must be one of {', '.join(CARD_MODES)}", lambda value: value in CARD_MODES, "hami-core"),
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
    **_COMMON,
}


def read_cards(declared: object, *, node: str, place: str) -> tuple[DeviceReport, ...]:
    """Answer the cards that `declared` gives to `node`, in the order of their indexes.

    A card without UUID is called `GPU-<node>-<index>` in both forms, so that a person may change from one to the other
    and every pod keeps its cards. `place` is where `declared` stands, for messages.

    Raises:
        InvalidFieldError: naming the place, the key, what it holds and the remedy.
    """
    if isinstance(declared, Mapping):
        return _compact(declared, node=node, place=place)
    if isinstance(declared, list) and len(declared) <= _MOST_CARDS:
        return _listed(declared, node=node, place=place)
    raise InvalidFieldError(
        field=place,
        value=declared,
        expected=f"a node has a mapping with count and memoryMiB, or a list of at most {_MOST_CARDS} cards",
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
                remedy="name cards that exist",
            )
    prefix = fields["uuidPrefix"] or f"GPU-{node}"
    return tuple(
        _card(fields, index=index, uuid=f"{prefix}-{index}", healthy=index not in fields["unhealthy"])
        for index in range(count)
    )


def _listed(declared: list[Any], *, node: str, place: str) -> tuple[DeviceReport, ...]:
    cards: dict[int, DeviceReport] = {}
    for position, item in enumerate(declared):
        here = f"{place}[{position}]"
        if not isinstance(item, Mapping):
            raise InvalidFieldError(
                field=here,
                value=item,
                expected="a card is a mapping",
                remedy="write for example {index: 0, memoryMiB: 81920}",
            )
        fields = _fields(item, _LISTED, place=here)
        index = fields["index"]
        if index in cards:
            raise InvalidFieldError(
                field=f"{here}.index",
                value=index,
                expected="another card of the node has this index",
                remedy="give each card an index of its own",
            )
        cards[index] = _card(
            fields, index=index, uuid=fields["uuid"] or f"GPU-{node}-{index}", healthy=fields["healthy"]
        )
    return tuple(cards[index] for index in sorted(cards))


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
    known = f"the keys are {', '.join(sorted(keys))}"
    for name, value in declared.items():
        key = keys.get(name)
        if key is None:
            raise InvalidFieldError(field=f"{place}.{name}", value=value, expected="there is no such key", remedy=known)
        if not key.accepts(value):
            raise InvalidFieldError(
                field=f"{place}.{name}", value=value, expected=key.expected, remedy="correct the value"
            )
    for name, key in keys.items():
        if name not in declared and key.default is None and not key.optional:
            raise InvalidFieldError(field=f"{place}.{name}", value="", expected=key.expected, remedy="add the key")
    return {name: declared.get(name, key.default) for name, key in keys.items()}
