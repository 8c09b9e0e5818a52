"""MIG in a fleet file: the instances of a card in MIG mode, and whether the agent may create more.

    {index: 0, memoryMiB: 81920, mode: mig, instances: [{profile: 1g.10gb, start: 6}], instancesBy: agent}

Such a card has the profiles of NVIDIA's 7-slice cards (A100, H100, H200), scaled to its memory.
"""

from collections.abc import Mapping
from typing import Any, Final

from agent.nvml.mig_devices import mig_devices
from agent.nvml.mig_reading import InstanceReading, MigReading
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.inventory import Card
from allocation.mig import InstanceRequest, MigProfile, Slices
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
"""Compute slices, memory slices and starts, from the A100 profiles in NVIDIA's MIG user guide."""


def standard_profiles(memory_mib: int) -> tuple[MigProfile, ...]:
    """Return the profiles of a 7-slice card with `memory_mib`."""
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


def declared_devices(device: DeviceReport, fields: Mapping[str, Any], *, place: str) -> tuple[DeviceReport, ...]:
    """Return the devices of a declared card: the card itself, followed in MIG mode by its instances.

    Raises:
        InvalidFieldError: the card cannot have an instance as declared.
    """
    if not device.card.is_mig_enabled:
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
    return mig_devices(device, MigReading(profiles, tuple(readings)), by=fields["instancesBy"])


def simulated_instance(device: DeviceReport, request: InstanceRequest) -> DeviceReport:
    """Return the requested instance of the simulated card `device`."""
    profile = next(each for each in device.card.mig_profiles if each.name == request.profile)
    reading = _reading(device.card, profile, request.slices)
    return mig_devices(device, MigReading(device.card.mig_profiles, (reading,)), by=device.card.instances_by)[1]


def _instance(
    declared: object, card: Card, profiles: tuple[MigProfile, ...], taken: list[Slices], *, place: str
) -> InstanceReading:
    by_name = {profile.name: profile for profile in profiles}
    if not isinstance(declared, Mapping) or set(declared) != {"profile", "start"} or declared["profile"] not in by_name:
        raise InvalidFieldError(
            field=place,
            value=declared,
            expected=f"an instance must have a profile, one of {', '.join(by_name)}, and a start",
            remedy=f"write for example {{profile: {profiles[0].name}, start: 6}}",
        )
    profile = by_name[declared["profile"]]
    slices = next((each for each in profile.placements if each.start == declared["start"]), None)
    if slices is None or any(slices.overlaps(other) for other in taken):
        starts = ", ".join(str(each.start) for each in profile.placements)
        raise InvalidFieldError(
            field=f"{place}.start",
            value=declared["start"],
            expected=f"{profile.name} may start at {starts}, and must not overlap another instance",
            remedy="choose a free start",
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
