"""Creates and destroys the MIG instances of one card through NVML.

Both operations are idempotent: an existing instance is not created twice, destroying a missing one succeeds, and an
instance that an earlier process created only in part is completed. NVML refuses to destroy an instance in use.
"""

from collections.abc import Iterator
from ctypes import byref, c_uint
from typing import Any

import pynvml

from agent.nvml.mig_reading import placements, profile_infos
from agent.nvml.nvml import NotThereError, NvmlError, call
from allocation.mig import Slices


def create(handle: Any, *, slice_count: int, slices: Slices, memory_mib: int) -> None:
    """Create a GPU instance at `slices` with one compute instance that spans it.

    Raises:
        NvmlError: the instance cannot be created.
    """
    sizes = slice_count, memory_mib
    infos = (info for info in profile_infos(handle) if (info.sliceCount, info.memorySizeMB) == sizes)
    info = next((info for info in infos if slices in placements(handle, info.id)), None)
    if info is None:
        raise NvmlError(f"no profile has {slice_count} slices and {memory_mib} MiB at slice {slices.start}")
    instance = _find(handle, slices)
    if instance is None:
        place = pynvml.c_nvmlGpuInstancePlacement_t(slices.start, slices.size)
        instance = call("nvmlDeviceCreateGpuInstanceWithPlacement", handle, info.id, byref(place))
    if not list(_compute_instances(instance)):
        whole = next(each for each in _compute_profiles(instance) if each.sliceCount == slice_count)
        call("nvmlGpuInstanceCreateComputeInstance", instance, whole.id)


def destroy(handle: Any, *, slices: Slices) -> None:
    """Destroy the GPU instance at `slices`, if there is one.

    Raises:
        NvmlError: the instance cannot be destroyed, most likely because a process uses it.
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
        buffer = (pynvml.c_nvmlGpuInstance_t * max(info.instanceCount, 1))()
        call("nvmlDeviceGetGpuInstances", handle, info.id, buffer, byref(count))
        for instance in buffer[: count.value]:
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
        buffer = (pynvml.c_nvmlComputeInstance_t * max(info.instanceCount, 1))()
        call("nvmlGpuInstanceGetComputeInstances", instance, info.id, buffer, byref(count))
        yield from buffer[: count.value]
