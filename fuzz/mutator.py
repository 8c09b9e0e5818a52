"""The mutator: it changes the structure of an input more often than its bytes, which decoders mostly reject.

An input is one JSON value, or one per line; any other input is changed as bytes. A string that is JSON itself, such as
an annotation, is changed inside.
"""

import json
import random
from collections.abc import Callable
from typing import Any, Final

Bytes = Callable[[bytes, int], bytes]
"""Mutates bytes, up to a maximum length: atheris.Mutate, or `plain`."""

_DEEP: Final = 60
_VERY_DEEP_SHARE: Final = 0.02
_HOSTILE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30),
    *(0.5, -0.0, 1e308, 5e-324, [], {}, [[]], [{}], [None], {"": None}),
    *("", " ", "0", "-1", "1k", "10Gi", "1e400", "0.1", "1e-999", "9" * 64, "9" * 5000, "\u0661", "1_0", "0x10", "NaN"),
    *(
        "\x00",
        "\n",
        "\ufeff",
        "\U0001f600",
        "é" * 64,
        "a" * 254,
        "a" * 8192,
        "/",
        "~0~1",
        "../..",
        "%s{0}",
        "'",
        '"',
        ",",
    ),
    *(
        "true",
        "null",
        "void",
        "all",
        "none",
        "{}",
        "[]",
        "tranche",
        "default-scheduler",
        "Always",
        "In",
        "Gt",
        "Exists",
    ),
)


def mutate(data: bytes, largest: int, dice: random.Random, change: Bytes) -> bytes:
    """Return a mutation of `data` with at most `largest` bytes."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        data = _step(data, largest, dice, change)
    return data[:largest]


def plain(dice: random.Random) -> Bytes:
    """Return a mutation of bytes that does not need atheris."""

    def change(data: bytes, largest: int) -> bytes:
        some = bytearray(data)
        where = dice.randrange(len(some) + 1)
        match dice.randrange(4):
            case 0:
                some[where:where] = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 5)))
            case 1:
                del some[where : where + dice.randrange(1, 9)]
            case 2:
                some[where:where] = some[where : where + dice.randrange(1, 65)]
            case _ if where < len(some):
                some[where] ^= 1 << dice.randrange(8)
        return bytes(some[:largest])

    return change


def _step(data: bytes, largest: int, dice: random.Random, change: Bytes) -> bytes:
    if dice.random() < 0.2:
        return change(data, largest)
    if dice.random() < _VERY_DEEP_SHARE:
        return _very_deep(data, largest, dice)
    lines = data.split(b"\n")
    which = dice.randrange(len(lines))
    for begin, end in ((0, len(lines)), (which, which + 1)):
        try:
            value = json.loads(b"\n".join(lines[begin:end]))
        except (ValueError, RecursionError):
            continue
        try:
            written = json.dumps(_changed(value, dice), ensure_ascii=dice.random() < 0.5)
        except RecursionError:
            break
        changed = b"\n".join((*lines[:begin], written.encode(errors="surrogatepass"), *lines[end:]))
        return changed if len(changed) <= largest else data
    return change(data, largest)


def _very_deep(data: bytes, largest: int, dice: random.Random) -> bytes:
    """Insert thousands of nested brackets where a value may begin."""
    places = [place + 1 for place, byte in enumerate(data) if byte in b":[,"]
    where = dice.choice(places) if places else len(data)
    bracket = dice.choice((b"[", b'{"a":', b'{"a":[', b"- "))
    deep = bracket * dice.choice((1_000, 10_000))
    made = data[:where] + deep + data[where:]
    return made if len(made) <= largest else data


def _changed(value: Any, dice: random.Random) -> Any:
    """Change one place in `value`, chosen by a random walk from its root."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        return _changed_members(dict(value), dice)
    if isinstance(value, list) and value and dice.random() < 0.9:
        return _changed_items(list(value), dice)
    if isinstance(value, str) and value[:1] in ("{", "[") and dice.random() < 0.7:
        try:
            return json.dumps(_changed(json.loads(value), dice))
        except (ValueError, RecursionError):
            pass
    return _replaced(value, dice)


def _changed_members(members: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    key = dice.choice(list(members))
    match dice.randrange(12):
        case 0:
            del members[key]
        case 1:
            members[str(dice.choice(_HOSTILE))] = members.pop(key)
        case 2:
            members[str(dice.choice(_HOSTILE))] = members[key]
        case 3:
            members[key] = members[dice.choice(list(members))]
        case _:
            members[key] = _changed(members[key], dice)
    return members


def _changed_items(items: list[Any], dice: random.Random) -> list[Any]:
    where = dice.randrange(len(items))
    match dice.randrange(10):
        case 0:
            del items[where]
        case 1:
            items.insert(where, items[where])
        case 2:
            items = (items * 40)[:200]
        case _:
            items[where] = _changed(items[where], dice)
    return items


def _replaced(value: Any, dice: random.Random) -> Any:
    match dice.randrange(8):
        case 0:
            for _ in range(dice.choice((2, _DEEP, 5 * _DEEP))):
                value = [value] if dice.random() < 0.5 else {"a": value}
            return value
        case 1 if isinstance(value, int):
            return value + dice.choice((-1, 1, 7, 1 << dice.randrange(70)))
        case 2 if isinstance(value, str):
            where = dice.randrange(len(value) + 1)
            return value[:where] + str(dice.choice(_HOSTILE)) + value[where:]
        case 3:
            return "\\ud800" if isinstance(value, str) else str(value)[:64]
        case 4:
            return "\ud800x"
        case _:
            return dice.choice(_HOSTILE)
