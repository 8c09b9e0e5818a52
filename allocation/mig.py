"""MIG: the instances that a card is divided into, and which new instance suits a request.

The rule is HAMi's (2.2.19 in tests/conformance): the smallest profile that is large enough and has a placement that
overlaps no other. 1g and 3g fill a card from its end, the others from its start, so that large ones stay possible.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

MODE: Final = "mig"
"""The mode of a card that is divided into instances, and of each instance."""

Creator = Literal["administrator", "agent", "plugin"]
"""Who creates the instances of a card: a person, our agent on request of the scheduler, or HAMi's device plugin."""

_FROM_THE_END: Final = ("1g.", "3g.")


class Slices(msgspec.Struct, frozen=True, order=True):
    """The position of an instance on its card, in NVML's memory slices."""

    start: int
    size: int

    @property
    def bits(self) -> int:
        """The slices as the bits of a number."""
        return ((1 << self.size) - 1) << self.start

    def overlaps(self, other: "Slices") -> bool:
        """Whether the two have a slice in common."""
        return self.bits & other.bits != 0


class MigProfile(msgspec.Struct, frozen=True):
    """A kind of instance that a card offers.

    Attributes:
        name: NVIDIA's name, such as `1g.10gb`.
        memory_mib: its memory.
        cores: its compute in millicards of the whole card.
        slice_count: its compute slices.
        placements: the slices that an instance can have.
    """

    name: str
    memory_mib: int
    cores: int
    slice_count: int
    placements: tuple[Slices, ...]


class MigInstance(msgspec.Struct, frozen=True):
    """The properties of a card that is a MIG instance of another card.

    Attributes:
        parent: UUID of the physical card.
        profile: its profile's name.
        slices: its position on the card; None if unknown.
        gpu_instance_id: NVML's ID; None if unknown.
        compute_instance_id: NVML's ID; None if unknown.
        request_id: the ID of the InstanceRequest that it was created for; empty if it was not created for one.
    """

    parent: str
    profile: str
    slices: Slices | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    request_id: str = ""


class InstanceRequest(msgspec.Struct, frozen=True, rename={"slices": "placement"}):
    """An instance that the scheduler requests from an agent, as in the `spec` of a GpuNodeStatus.

    Attributes:
        id: `<pod UID>/<n>`; no other pod may use the instance.
        card: UUID of the physical card.
        profile: its profile's name.
        slices: its position on the card.
    """

    id: str
    card: str
    profile: str
    slices: Slices

    @property
    def pod_uid(self) -> str:
        """The UID of the pod that the instance is for."""
        return self.id.rpartition("/")[0]


def suitable(
    profiles: Sequence[MigProfile],
    *,
    memory_on: Callable[[int], int],
    cores: int,
    taken: Sequence[Slices],
    only: str = "",
) -> tuple[MigProfile, Slices] | None:
    """Return the profile and the slices of a new instance for a request; None if the card has no space for one.

    `memory_on` returns the MiB requested of a card with the given MiB, `cores` are millicards, and `taken` are the
    slices of the card that are in use. If `only` is not empty, no other profile is suitable.
    """
    taken_bits = 0
    for slices in taken:
        taken_bits |= slices.bits
    for profile in sorted(profiles, key=lambda profile: (profile.memory_mib, profile.slice_count, profile.name)):
        if profile.cores < cores or (only and profile.name != only):
            continue
        free = [
            slices
            for slices in profile.placements
            if not slices.bits & taken_bits
            and memory_on(whole_mib(profile.memory_mib, slices, profiles)) <= profile.memory_mib
        ]
        if free:
            return profile, max(free) if profile.name.startswith(_FROM_THE_END) else min(free)
    return None


def whole_mib(memory_mib: int, slices: Slices, profiles: Iterable[MigProfile]) -> int:
    """Return the memory that a percentage refers to, for an instance with `memory_mib` on `slices` of a card.

    The instances of a card together never have quite all of its memory, but half of its slices count as half of it.
    """
    ends = [each.start + each.size for profile in profiles for each in profile.placements]
    return memory_mib * max(ends, default=slices.size) // slices.size
