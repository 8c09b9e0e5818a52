"""JSON Patch (RFC 6902): the operations that admission answers with, built by hand where something changes."""

from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

NONE: Final = msgspec.Raw()
"""Stands where nothing changes."""

_encode: Final = msgspec.json.Encoder().encode


class Operation(msgspec.Struct, frozen=True):
    """One operation; `remove` has no value."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = msgspec.UNSET


@lru_cache(maxsize=1024)  # the pods of a cluster have the same few places
def pointer(*parts: str | int) -> str:
    """Answer the JSON Pointer (RFC 6901) to a place in a pod."""
    text = "/" + "/".join(map(str, parts))
    if "~" not in text and text.count("/") == len(parts):
        return text
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def add(path: str, value: object) -> Operation:
    """Add a member, or replace the one that is there; or insert into an array before the index that `path` ends in."""
    return Operation("add", path, value)


def replace(path: str, value: object) -> Operation:
    """Replace what is at `path`."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Remove what is at `path`; in an array, what follows moves up."""
    return Operation("remove", path)


def encode(operations: Sequence[Operation]) -> msgspec.Raw:
    """Answer the JSON of a review's `patch`: a string, in base64."""
    return msgspec.Raw(b'"%b"' % b64encode(_encode(operations))) if operations else NONE
