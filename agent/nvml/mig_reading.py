"""Reads the MIG instances and profiles of one card through NVML."""

from collections import Counter
from collections.abc import Iterator
from ctypes import byref, c_uint
from typing import Any, Final

import msgspec
import pynvml

from agent.nvml.nvml import NotThereError, NvmlError, call
from allocation.mig import MigProfile, Slices
from allocation.request import WHOLE_CARD

_EIGHTHS: Final = 8
_KIB: Final = 1024


class InstanceReading(msgspec.Struct, frozen=True):
    """One MIG device.

    Attributes:
        slices: its position on the card; None if the driver does not report it to this process.
        is_alone: whether no other compute instance shares its GPU instance, and so its memory.
    """

    uuid: str
    profile: str
    memory_mib: int
    slice_count: int
    gpu_instance_id: int
    compute_instance_id: int
    slices: Slices | None
    is_alone: bool


class MigReading(msgspec.Struct, frozen=True):
    """The profiles that a card in MIG mode supports, and its instances."""

    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[InstanceReading, ...] = ()


def read_mig(handle: Any, *, memory_mib: int) -> MigReading:
    """Read the card behind `handle`, which is in MIG mode and has `memory_mib` in total.

    Raises:
        NvmlError: profiles or instances cannot be read.
    """
    infos = dict(_profiles(handle, memory_mib=memory_mib))
    most = max((profile.slice_count for profile in infos.values()), default=1)
    profiles = {
        number: msgspec.structs.replace(profile, cores=profile.slice_count * WHOLE_CARD // most)
        for number, profile in infos.items()
    }
    devices = tuple(_devices(handle))
    sharing = Counter(gpu_instance for _, gpu_instance in devices)
    return MigReading(
        tuple(profile for profile in profiles.values() if profile.placements),
        tuple(
            _instance(handle, device, gpu_instance, profiles, is_alone=sharing[gpu_instance] == 1)
            for device, gpu_instance in devices
        ),
    )


def profile_name(name: str) -> str:
    """Extract a profile's name from NVML's `MIG 1g.10gb`, or `NVIDIA H100 80GB HBM3 MIG 1g.10gb` for a device."""
    return name.rpartition("MIG ")[2].strip()


def profile_infos(handle: Any) -> Iterator[Any]:
    """Yield NVML's description of each profile of the card; old drivers leave out the names."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        for version in (2, 1):
            try:
                yield call("nvmlDeviceGetGpuInstanceProfileInfo", handle, number, version)
            except NotThereError:
                continue
            break


def _profiles(handle: Any, *, memory_mib: int) -> Iterator[tuple[int, MigProfile]]:
    """Yield the profiles with NVML's number; variants with other engines have no placements here."""
    for info in profile_infos(handle):
        name = profile_name(_text(getattr(info, "name", b""))) or _name(info, memory_mib)
        plain = not set("+-") & set(name)
        yield (
            int(info.id),
            MigProfile(
                name, int(info.memorySizeMB), 0, int(info.sliceCount), placements(handle, int(info.id)) if plain else ()
            ),
        )


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _name(info: Any, memory_mib: int) -> str:
    """Return NVIDIA's name of a profile: its slices, and its share of the card's GB in eighths, rounded up."""
    eighths = -(-int(info.memorySizeMB) * _EIGHTHS // memory_mib)
    whole = -(-memory_mib // _KIB)
    return f"{info.sliceCount}g.{round(whole * eighths / _EIGHTHS)}gb"


def placements(handle: Any, number: int) -> tuple[Slices, ...]:
    """Return the possible placements of the profile with that number."""
    count = c_uint()
    call("nvmlDeviceGetGpuInstancePossiblePlacements", handle, number, None, byref(count))
    buffer = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    call("nvmlDeviceGetGpuInstancePossiblePlacements", handle, number, buffer, byref(count))
    return tuple(sorted(Slices(place.start, place.size) for place in buffer[: count.value]))


def _devices(handle: Any) -> Iterator[tuple[Any, int]]:
    for position in range(int(call("nvmlDeviceGetMaxMigDeviceCount", handle))):
        try:
            device = call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
        except NotThereError:
            continue
        yield device, int(call("nvmlDeviceGetGpuInstanceId", device))


def _instance(
    handle: Any, device: Any, gpu_instance: int, profiles: dict[int, MigProfile], *, is_alone: bool
) -> InstanceReading:
    attributes = call("nvmlDeviceGetAttributes", device)
    name, slices = profile_name(str(call("nvmlDeviceGetName", device))), None
    try:
        info = call("nvmlGpuInstanceGetInfo", call("nvmlDeviceGetGpuInstanceById", handle, gpu_instance))
    except NvmlError:
        pass  # only a privileged process may read the placement
    else:
        slices = Slices(info.placement.start, info.placement.size)
        name = profiles[info.profileId].name if info.profileId in profiles else name
    return InstanceReading(
        uuid=str(call("nvmlDeviceGetUUID", device)),
        profile=name,
        memory_mib=int(attributes.memorySizeMB),
        slice_count=int(attributes.gpuInstanceSliceCount),
        gpu_instance_id=gpu_instance,
        compute_instance_id=int(call("nvmlDeviceGetComputeInstanceId", device)),
        slices=slices,
        is_alone=is_alone,
    )
