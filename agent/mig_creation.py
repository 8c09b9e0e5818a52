"""Makes and destroys the MIG instances of one card, through NVML.

Both are repeatable: what is there already is not made twice, what is gone already is no error, and an instance that an
earlier process left half made is finished. NVML itself refuses to destroy what a process still uses.
"""

from collections.abc import Iterator
from ctypes import byref, c_uint
from typing import Any

import pynvml

from agent.mig_reading import places, profile_infos
from agent.nvml import NotThereError, NvmlError, call
from allocation.mig import Slices


def create(handle: Any, *, slice_count: int, slices: Slices, memory_mib: int) -> None:
    """Have a GPU instance at `slices` with one compute instance that has all of it.

    Raises:
        NvmlError: it cannot be made.
    """
    info = next(
        (
            info
            for info in profile_infos(handle)
            if (info.sliceCount, info.memorySizeMB) == (slice_count, memory_mib) and slices in places(handle, info.id)
        ),
        None,
    )
    if info is None:
        raise NvmlError(f"no profile has {slice_count} slices and {memory_mib} MiB at {slices.start}")
    instance = _find(handle, slices)
    if instance is None:
        place = pynvml.c_nvmlGpuInstancePlacement_t(slices.start, slices.size)
        instance = call("nvmlDeviceCreateGpuInstanceWithPlacement", handle, info.id, byref(place))
    if not list(_compute_instances(instance)):
        whole = next(each for each in _compute_profiles(instance) if each.sliceCount == slice_count)
        call("nvmlGpuInstanceCreateComputeInstance", instance, whole.id)


def destroy(handle: Any, *, slices: Slices) -> None:
    """Have no GPU instance at `slices`.

    Raises:
        NvmlError: it cannot be destroyed, most likely because a process uses it.
    """
    instance = _find(handle, slices)
    if instance is None:
        return
    for compute in list(_compute_instances(instance)):
        call("nvmlComputeInstanceDestroy", compute)
    call("nvmlGpuInstanceDestroy", instance)


def _find(handle: Any, slices: Slices) -> Any:
    for info in profile_infos(handle):
        count = c_uint()
        room = (pynvml.c_nvmlGpuInstance_t * max(info.instanceCount, 1))()
        call("nvmlDeviceGetGpuInstances", handle, info.id, room, byref(count))
        for instance in room[: count.value]:
            place = call("nvmlGpuInstanceGetInfo", instance).placement
            if Slices(place.start, place.size) == slices:
                return instance
    return None


def _compute_profiles(instance: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield call(
                "nvmlGpuInstanceGetComputeInstanceProfileInfo",
                instance,
                number,
                pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
                1,
            )
        except NotThereError:
            continue


def _compute_instances(instance: Any) -> Iterator[Any]:
    for info in _compute_profiles(instance):
        count = c_uint()
        room = (pynvml.c_nvmlComputeInstance_t * max(info.instanceCount, 1))()
        call("nvmlGpuInstanceGetComputeInstances", instance, info.id, room, byref(count))
        yield from room[: count.value]
