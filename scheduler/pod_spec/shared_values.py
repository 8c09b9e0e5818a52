"""Values that many pods have alike, kept once: replicas have the same labels, requests, tolerations and owner."""

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

Value = TypeVar("Value")

_MOST: Final = 32
"""The entries of a mapping that is shared; with the limits of the API server for labels, some 12 KB."""
_EMPTY: Final[Mapping[str, Any]] = {}


@lru_cache(maxsize=1024)
def _first_mapping(items: tuple[tuple[str, Any], ...]) -> Mapping[str, Any]:
    return dict(items)


@lru_cache(maxsize=1024)
def _first_tuple(values: Hashable) -> Hashable:
    return values


def shared(mapping: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the first of all mappings with the same entries in the same order.

    The API server writes keys in order, so equal mappings are the same then.
    """
    if not mapping:
        return _EMPTY
    return _first_mapping(tuple(mapping.items())) if len(mapping) <= _MOST else mapping


def shared_tuple(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the first of all equal tuples, whose values are hashable and within the limits of a pod."""
    return cast("tuple[Value, ...]", _first_tuple(values))
