"""JSON Patch (RFC 6902): the operations of a review's response."""

from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

NONE: Final = msgspec.Raw()
"""The value of `patch` where nothing changes."""

_encode: Final = msgspec.json.Encoder().encode


class Operation(msgspec.Struct, frozen=True):
    """One operation; `remove` has no value."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = msgspec.UNSET


@lru_cache(maxsize=1024)  # the pods of a cluster share a few paths
def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) with these reference tokens."""
    text = "/" + "/".join(map(str, parts))
    if "~" not in text and text.count("/") == len(parts):
        return text
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def add(path: str, value: object) -> Operation:
    """Add or replace a member of an object, or insert into an array before the index at the end of `path`."""
    return Operation("add", path, value)


def replace(path: str, value: object) -> Operation:
    """Replace the value at `path`."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Remove the value at `path`; in an array, the following elements move up."""
    return Operation("remove", path)


def encode(operations: Sequence[Operation]) -> msgspec.Raw:
    """Return the JSON of a review's `patch`: a base64 string."""
    return msgspec.Raw(b'"%b"' % b64encode(_encode(operations))) if operations else NONE
