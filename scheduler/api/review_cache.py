"""A cache for what the API server decides about callers."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 1024


class TtlCache(Generic[T]):
    """Values by key, each for a limited time. Holds a limited number of values: one more clears the cache first."""

    def __init__(self, seconds: float, *, clock: Callable[[], float], most: int = _MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._values: dict[bytes, tuple[float, T]] = {}

    def get(self, key: bytes) -> tuple[T] | None:
        """Return the value of `key` in a tuple, or None if it is missing or expired."""
        entry = self._values.get(key)
        return (entry[1],) if entry is not None and self._clock() < entry[0] else None

    def put(self, key: bytes, value: T) -> None:
        """Keep `value` from now on."""
        if len(self._values) >= self._most:
            self._values.clear()
        self._values[key] = (self._clock() + self._seconds, value)
