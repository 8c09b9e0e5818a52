"""Shapes of pods for which a node was brought that did not help: for a while no other node is asked for."""

from collections.abc import Hashable
from typing import Final

import msgspec

_LONGEST: Final = 16
_KEPT: Final = 256


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, how often in a row, and until when no node is asked for."""

    why: str
    count: int
    until: float


class Backoff:
    """The failures by shape."""

    def __init__(self, seconds: float) -> None:
        """Pause for `seconds` after the first failure, which doubles each time."""
        self._seconds = seconds
        self._failures: dict[Hashable, Failure] = {}

    def failed(self, shape: Hashable, why: str, now: float) -> None:
        """Note that a node did not help, or did not come."""
        before = self._failures.pop(shape, None)
        count = before.count + 1 if before is not None else 1
        pause = self._seconds * min(2 ** min(count - 1, _LONGEST), _LONGEST)
        self._failures[shape] = Failure(why, count, now + pause)
        if len(self._failures) > _KEPT:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, shape: Hashable) -> None:
        """Forget the failures of a shape, because a node helped."""
        self._failures.pop(shape, None)

    def pausing(self, shape: Hashable, now: float) -> Failure | None:
        """Return the failure because of which no node is asked for now."""
        failure = self._failures.get(shape)
        return failure if failure is not None and now < failure.until else None
