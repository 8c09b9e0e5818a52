"""What a pod requires, in one line: `cpu=4,mem=16g,gpu=2` (docs/queues.md)."""

import re
from typing import Final, Self

import msgspec

from allocation.errors import AllocationError

_MEMORY: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*(?:([kmgtp])(?:i?b|i)?)?", re.ASCII | re.IGNORECASE)
_INTEGER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_POWER: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_FIELDS: Final = {"cpu": "cpu", "mem": "memory_bytes", "memory": "memory_bytes", "gpu": "gpu"}


class Requirement(msgspec.Struct, frozen=True):
    """CPU in cores, memory in bytes, and GPUs; none is below zero."""

    cpu: int = 0
    memory_bytes: int = 0
    gpu: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a requirement; a missing field is 0, a unit is a power of 1024, and a fraction of a byte is dropped.

        Raises:
            AllocationError: an entry is malformed, or a field is set twice; the message names the entry.
        """
        found: dict[str, int] = {}
        for entry in text.split(","):
            key, equals, value = (part.strip() for part in entry.partition("="))
            field = _FIELDS.get(key.lower())
            if not equals or field is None:
                raise _malformed(text, entry, "write cpu=N, mem=SIZE or gpu=N")
            if field in found:
                raise _malformed(text, entry, "each of cpu, mem and gpu can be set only once")
            found[field] = _bytes(text, entry, value) if field == "memory_bytes" else _count(text, entry, value)
        return cls(**found)

    def __str__(self) -> str:
        """Return what `parse` reads as the same requirement."""
        return f"cpu={self.cpu},mem={self.memory_bytes},gpu={self.gpu}"


def _count(text: str, entry: str, value: str) -> int:
    if _INTEGER.fullmatch(value) is None:
        raise _malformed(text, entry, "a whole number is expected")
    return int(value)


def _bytes(text: str, entry: str, value: str) -> int:
    match = _MEMORY.fullmatch(value)
    if match is None:
        raise _malformed(text, entry, "a size such as 16g is expected")
    whole, fraction, unit = match[1], match[2] or "", (match[3] or "").lower()
    return int(whole + fraction) * (1 << 10 * _POWER[unit]) // int("1" + "0" * len(fraction))


def _malformed(text: str, entry: str, expected: str) -> AllocationError:
    return AllocationError(f"resreq {text!r}: entry {entry.strip()!r}: {expected}")
