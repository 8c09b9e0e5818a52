"""MIG: how a card is divided into instances, and which division suits a request.

The rule of choice is HAMi's (hami.md 2.2, "MIG choice"): the smallest profile that is large enough and has a place that
overlaps nothing. 1g and 3g fill a card from its end, the others from its start, so that large ones stay possible.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

MODE: Final = "mig"
"""Of a card that is divided into instances, and of each of them."""

Creator = Literal["administrator", "agent", "plugin"]
"""Who makes the instances of a card: a person, our agent when the scheduler asks it, or HAMi's device plugin."""

_FROM_THE_END: Final = ("1g.", "3g.")


class Slices(msgspec.Struct, frozen=True, order=True):
    """Where an instance lies on its card, counted in NVML's memory slices."""

    start: int
    size: int

    @property
    def bits(self) -> int:
        """Answer the slices as the bits of a number."""
        return ((1 << self.size) - 1) << self.start

    def overlaps(self, other: "Slices") -> bool:
        """Whether both have a slice in common."""
        return self.bits & other.bits != 0


class MigProfile(msgspec.Struct, frozen=True):
    """A kind of instance that a card can have.

    Attributes:
        name: NVIDIA's: `1g.10gb`.
        memory_mib: its memory.
        cores: its compute in millicards of the whole card.
        slice_count: its compute slices.
        placements: where on the card it may lie.
    """

    name: str
    memory_mib: int
    cores: int
    slice_count: int
    placements: tuple[Slices, ...]


class MigInstance(msgspec.Struct, frozen=True):
    """What a card of the inventory is that is an instance of another.

    Attributes:
        parent: UUID of the physical card.
        profile: its profile's name.
        slices: where it lies; None where nobody said.
        gpu_instance_id: NVML's, with `compute_instance_id`; None where nobody said.
        wish: the id of the scheduler's wish that it was made for; empty for one that was there.
    """

    parent: str
    profile: str
    slices: Slices | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    wish: str = ""


class Wish(msgspec.Struct, frozen=True, rename={"slices": "placement"}):
    """An instance that the scheduler asks an agent to make, as in the `spec` of a GpuNodeStatus.

    Attributes:
        id: `<pod UID>/<n>`: it belongs to that pod alone.
        card: UUID of the physical card.
        profile: its profile's name.
        slices: where it is to lie.
    """

    id: str
    card: str
    profile: str
    slices: Slices

    @property
    def pod_uid(self) -> str:
        """Answer whose it is."""
        return self.id.rpartition("/")[0]


def suitable(
    profiles: Sequence[MigProfile], *, memory_on: Callable[[int], int], cores: int, taken: Sequence[Slices]
) -> tuple[MigProfile, Slices] | None:
    """Answer the profile and the place for a request on a card of which `taken` is in use; None where none is left.

    `memory_on` answers the MiB that are asked of a card of so many MiB, `cores` are millicards.
    """
    taken_bits = 0
    for place in taken:
        taken_bits |= place.bits
    for profile in sorted(profiles, key=lambda profile: (profile.memory_mib, profile.slice_count, profile.name)):
        if profile.cores < cores:
            continue
        free = [
            place
            for place in profile.placements
            if not place.bits & taken_bits
            and memory_on(whole_mib(profile.memory_mib, place, profiles)) <= profile.memory_mib
        ]
        if free:
            return profile, max(free) if profile.name.startswith(_FROM_THE_END) else min(free)
    return None


def whole_mib(memory_mib: int, slices: Slices, profiles: Iterable[MigProfile]) -> int:
    """Answer the MiB of a card of which `memory_mib` lie on `slices`: what a percentage refers to.

    All instances together never have quite all of a card's memory, but half of its slices are half of it.
    """
    ends = [place.start + place.size for profile in profiles for place in profile.placements]
    return memory_mib * max(ends, default=slices.size) // slices.size
