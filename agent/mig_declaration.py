"""MIG in a fleet file: which instances a card in MIG mode has, and whether the agent makes more.

    {index: 0, memoryMiB: 81920, mode: mig, instances: [{profile: 1g.10gb, start: 6}], instancesBy: agent}

Such a card has the profiles of NVIDIA's 7-slice cards (A100, H100, H200) in the size of its own memory.
"""

from collections.abc import Mapping
from typing import Any, Final

from agent.mig_devices import divide
from agent.mig_reading import InstanceReading, MigReading
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.inventory import Card
from allocation.mig import MigProfile, Slices, Wish
from allocation.request import WHOLE_CARD

_MEMORY_SLICES: Final = 8
_COMPUTE_SLICES: Final = 7
_LAYOUT: Final = (
    (1, 1, tuple(range(7))),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
"""Compute slices, memory slices, starts: NVIDIA's MIG user guide, supported profiles of the A100."""


def standard_profiles(memory_mib: int) -> tuple[MigProfile, ...]:
    """Answer the profiles of a 7-slice card with `memory_mib`."""
    return tuple(
        MigProfile(
            name=f"{compute}g.{round(memory_mib * size / _MEMORY_SLICES / 1024)}gb",
            memory_mib=memory_mib * size // _MEMORY_SLICES,
            cores=compute * WHOLE_CARD // _COMPUTE_SLICES,
            slice_count=compute,
            placements=tuple(Slices(start, size) for start in starts),
        )
        for compute, size, starts in _LAYOUT
    )


def divided(device: DeviceReport, fields: Mapping[str, Any], *, place: str) -> tuple[DeviceReport, ...]:
    """Answer the devices of a declared card: itself, or in MIG mode also its instances.

    Raises:
        InvalidFieldError: an instance cannot be as it is declared.
    """
    if not device.card.is_divided:
        if fields["instances"] or fields["instancesBy"] != "administrator":
            raise InvalidFieldError(
                field=f"{place}.mode",
                value=device.card.mode,
                expected="only a card in MIG mode has instances",
                remedy="write mode: mig, or remove instances and instancesBy",
            )
        return (device,)
    profiles = standard_profiles(device.card.memory_mib)
    taken: list[Slices] = []
    readings = []
    for position, declared in enumerate(fields["instances"]):
        reading = _instance(declared, device.card, profiles, taken, place=f"{place}.instances[{position}]")
        readings.append(reading)
    return divide(device, MigReading(profiles, tuple(readings)), by=fields["instancesBy"])


def made(device: DeviceReport, wish: Wish) -> DeviceReport:
    """Answer the device that a simulated card has once it has made the instance of a wish."""
    profile = next(each for each in device.card.mig_profiles if each.name == wish.profile)
    reading = _reading(device.card, profile, wish.slices)
    return divide(device, MigReading(device.card.mig_profiles, (reading,)), by=device.card.instances_by)[1]


def _instance(
    declared: object, card: Card, profiles: tuple[MigProfile, ...], taken: list[Slices], *, place: str
) -> InstanceReading:
    known = {profile.name: profile for profile in profiles}
    if not isinstance(declared, Mapping) or set(declared) != {"profile", "start"} or declared["profile"] not in known:
        raise InvalidFieldError(
            field=place,
            value=declared,
            expected=f"an instance has a profile, one of {', '.join(known)}, and a start",
            remedy=f"write for example {{profile: {profiles[0].name}, start: 6}}",
        )
    profile = known[declared["profile"]]
    slices = next((each for each in profile.placements if each.start == declared["start"]), None)
    if slices is None or any(slices.overlaps(other) for other in taken):
        starts = ", ".join(str(each.start) for each in profile.placements)
        raise InvalidFieldError(
            field=f"{place}.start",
            value=declared["start"],
            expected=f"{profile.name} may start at {starts} where no other instance lies",
            remedy="choose a start that is free",
        )
    taken.append(slices)
    return _reading(card, profile, slices)


def _reading(card: Card, profile: MigProfile, slices: Slices) -> InstanceReading:
    return InstanceReading(
        uuid=f"MIG-{card.uuid}-{slices.start}-{slices.size}",
        profile=profile.name,
        memory_mib=profile.memory_mib,
        slice_count=profile.slice_count,
        gpu_instance_id=slices.start + 1,
        compute_instance_id=0,
        slices=slices,
        is_alone=True,
    )
