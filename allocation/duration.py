"""Durations as Kubernetes' users write them, which is Go's form: `90s`, `30m`, `1h30m`, `1.5h`."""

import re
from typing import Final

from allocation.errors import AllocationError

_EXPECTED: Final = "it must be a duration in hours, minutes and seconds, such as 2h, 30m or 1h30m"

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([hms])")
_GRAMMAR: Final = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
_MAX_LENGTH: Final = 64


def seconds(text: str) -> float:
    """Return the seconds of a duration, which is never negative.

    Raises:
        AllocationError: `text` is not a duration; a plain number is not one, because it has no unit.
    """
    if len(text) > _MAX_LENGTH or not _GRAMMAR.fullmatch(text):
        raise AllocationError(f"{text[:_MAX_LENGTH]!r}: {_EXPECTED}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
