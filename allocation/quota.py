"""What a namespace may have in all: ResourceQuota's `limits.` keys of our resources (hami.md 1.6), repaired.

Several objects of one namespace combine by their minimum, and use is the sum of what live pods hold, recomputed.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import quantity
from allocation.errors import AllocationError
from allocation.request import MILLI_PER_PERCENT, ContainerRequest
from allocation.settings import ResourceNames

_PREFIX = "limits."
Flags = NDArray[np.bool_]


class Room(msgspec.Struct, frozen=True):
    """How much a namespace may still take; None is unlimited.

    Attributes:
        memory_mib: MiB over all its shares.
        cores: millicards over all its shares.
        cards: shares, each of one card.
    """

    memory_mib: int | None = None
    cores: int | None = None
    cards: int | None = None

    def is_exceeded(
        self, request: ContainerRequest, memory_mib: NDArray[np.int64], cores: NDArray[np.int64] | np.int64
    ) -> Flags:
        """Answer for each card whether a container that took all its cards alike would go beyond the room.

        `memory_mib` and `cores` are what it would be charged on each.
        """
        answer = np.zeros(memory_mib.shape, np.bool_)
        if self.cards is not None and request.count > self.cards:
            answer[:] = True
        if self.cores is not None:
            answer |= cores * request.count > self.cores
        if self.memory_mib is not None:
            answer |= memory_mib * request.count > self.memory_mib
        return answer

    def less(self, *, memory_mib: int, cores: int, cards: int) -> "Room":
        """Answer what is left after some of it is taken."""
        return Room(
            None if self.memory_mib is None else self.memory_mib - memory_mib,
            None if self.cores is None else self.cores - cores,
            None if self.cards is None else self.cards - cards,
        )


UNLIMITED = Room()
"""What a namespace without a quota may take."""


def limits(hards: Iterable[Mapping[str, str]], names: ResourceNames) -> Room:
    """Answer what a namespace may have: the smallest limit of each resource over its ResourceQuota objects.

    `hards` are their `spec.hard`. A limit that cannot be read as a whole number counts as 0: it was meant to limit.
    """
    found: dict[str, int] = {}
    for hard in hards:
        for name in (names.memory, names.cores, names.count):
            text = hard.get(_PREFIX + name)
            if text is not None:
                limit = _read(text)
                found[name] = min(found.get(name, limit), limit)
    cores = found.get(names.cores)
    return Room(found.get(names.memory), None if cores is None else cores * MILLI_PER_PERCENT, found.get(names.count))


def _read(text: str) -> int:
    try:
        return quantity.unit_capacity(text)
    except AllocationError:
        return 0
