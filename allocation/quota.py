"""What a namespace may have in all: ResourceQuota's `limits.` keys of our resources (hami.md 1.6), repaired.

Several objects of one namespace combine by their minimum, and use is the sum of what live pods hold, recomputed.
"""

from collections.abc import Iterable, Mapping

import msgspec

from allocation import quantity
from allocation.errors import AllocationError
from allocation.request import MILLI_PER_PERCENT, Kind, PodRequest
from allocation.settings import AllocationSettings

_PREFIX = "limits."


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

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self.memory_mib is not None or self.cores is not None or self.cards is not None

    def allows(self, *, memory_mib: int, cores: int, cards: int) -> bool:
        """Whether so much more is within it."""
        return (
            (self.memory_mib is None or memory_mib <= self.memory_mib)
            and (self.cores is None or cores <= self.cores)
            and (self.cards is None or cards <= self.cards)
        )

    def less(self, *, memory_mib: int, cores: int, cards: int) -> "Room":
        """Answer what is left after some of it is taken."""
        return Room(
            None if self.memory_mib is None else self.memory_mib - memory_mib,
            None if self.cores is None else self.cores - cores,
            None if self.cards is None else self.cards - cards,
        )


UNLIMITED = Room()
"""What a namespace without a quota may take."""


def limits(hards: Iterable[Mapping[str, str]], settings: AllocationSettings) -> Room:
    """Answer what a namespace may have: the smallest limit of each resource over its ResourceQuota objects.

    `hards` are their `spec.hard`. A limit that cannot be read as a whole number counts as 0: it was meant to limit.
    """
    names = settings.resources
    found: dict[str, int] = {}
    for hard in hards:
        for name in (names.memory, names.cores, names.count):
            text = hard.get(_PREFIX + name)
            if text is not None:
                limit = _read(text)
                found[name] = min(found.get(name, limit), limit)
    memory, cores = found.get(names.memory), found.get(names.cores)
    return Room(
        None if memory is None else memory * settings.memory_factor,
        None if cores is None else cores * MILLI_PER_PERCENT,
        found.get(names.count),
    )


class Need(msgspec.Struct, frozen=True):
    """What a pod takes of its namespace's quota at least, whichever cards it gets: MiB, millicards, shares."""

    memory_mib: int = 0
    cores: int = 0
    cards: int = 0

    def __add__(self, other: "Need") -> "Need":
        """Answer what both take together."""
        return Need(self.memory_mib + other.memory_mib, self.cores + other.cores, self.cards + other.cards)

    def __or__(self, other: "Need") -> "Need":
        """Answer what is enough for either."""
        return Need(max(self.memory_mib, other.memory_mib), max(self.cores, other.cores), max(self.cards, other.cards))


def least_need(request: PodRequest) -> Need:
    """Answer what is certain before any card is chosen; a percentage of memory is nothing yet, as in HAMi.

    Regular and sidecar containers add up, an init container stands beside the sidecars started before it.
    """
    steady = peak = Need()
    for container in request.gpu_containers:
        count = container.count
        own = Need((container.memory_mib or 0) * count, container.cores * count, count)
        if container.kind is Kind.INIT:
            peak |= steady + own
        else:
            steady += own
    return peak | steady


def certain_excess(request: PodRequest, hards: Mapping[str, Mapping[str, str]], settings: AllocationSettings) -> str:
    """Answer which quota forbids `request` even in an empty namespace, empty where none does.

    `hards` are the `spec.hard` of the namespace's ResourceQuota objects by their names.
    """
    if not hards:
        return ""
    need, names = least_need(request), settings.resources
    for quota, hard in sorted(hards.items()):
        room = limits((hard,), settings)
        for name, asked, limit, unit in (
            (names.memory, need.memory_mib, room.memory_mib, settings.memory_factor),
            (names.cores, need.cores, room.cores, MILLI_PER_PERCENT),
            (names.count, need.cards, room.cards, 1),
        ):
            if limit is not None and asked > limit:
                return (
                    f"the pod takes {-(-asked // unit)} of {name},"
                    f" and ResourceQuota {quota} limits its namespace to {limit // unit}"
                )
    return ""


def _read(text: str) -> int:
    try:
        return quantity.unit_capacity(text)
    except AllocationError:
        return 0
