"""The keys of mappings in a fleet file. Nothing is guessed: unknown keys and values of the wrong type are errors."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allocation.errors import InvalidFieldError
from allocation.quantity import INT32_MAX


class Key(msgspec.Struct, frozen=True):
    """A key and its allowed values; it is required if its default is None, unless it is `optional`."""

    expected: str
    accepts: Callable[[Any], bool]
    default: Any = None
    optional: bool = False


def whole(least: int, most: int = INT32_MAX, *, default: int | None = None) -> Key:
    """Return the key of a whole number within bounds."""

    def accepts(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return Key(f"it must be a whole number from {least} to {most}", accepts, default)


def text(longest: int = 253) -> Key:
    """Return the key of a string, empty by default."""
    return Key(
        f"it must be a string of at most {longest} characters",
        lambda value: isinstance(value, str) and len(value) <= longest,
        "",
    )


def boolean(*, default: bool | None = None) -> Key:
    """Return the key of true or false."""
    return Key("it must be true or false", lambda value: isinstance(value, bool), default)


def one_of(*values: str, default: str | None = None) -> Key:
    """Return the key of one of several strings."""
    return Key(f"it must be one of {', '.join(values)}", lambda value: value in values, default)


def list_of(what: str, most: int | None = None) -> Key:
    """Return the key of a list, whose entries its reader checks; empty by default."""

    def accepts(value: object) -> bool:
        return isinstance(value, list) and (most is None or len(value) <= most)

    return Key(f"it must be a list of {what if most is None else f'at most {most} {what}'}", accepts, ())


def per_card(key: Key) -> Key:
    """Return the key of a value for all cards of a node, or of a list with one value for each (`of_card`)."""

    def accepts(value: object) -> bool:
        return key.accepts(value) or (isinstance(value, list) and all(map(key.accepts, value)))

    return Key(f"{key.expected}, or a list with such a value for each card", accepts, key.default)


def mapping() -> Key:
    """Return the key of an optional mapping, whose keys its reader checks."""
    return Key("it must be a mapping", lambda value: isinstance(value, Mapping), optional=True)


def read(declared: object, keys: Mapping[str, Key], *, place: str, example: str) -> dict[str, Any]:
    """Return the value of each of `keys`; `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: it is not a mapping such as `example`, or a key is unknown, missing or has an invalid value.
    """
    if not isinstance(declared, Mapping):
        raise InvalidFieldError(
            field=place, value=declared, expected="it must be a mapping", remedy=f"write for example {example}"
        )
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
