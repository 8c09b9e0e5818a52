"""What the processes of one card use of it, through NVML. A value that cannot be read is None.

NVML reports the processes by their PIDs in the PID namespace of the caller: an agent without the host's sees none of
other containers, and does not learn that they exist.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
import pynvml

from agent.device_use import DeviceUse, ProcessUse
from agent.nvml.nvml import NotThereError, NvmlError, call
from agent.processes import Container

_PROCESSES: Final = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)
_NO_SAMPLES: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA})
"""pynvml raises an error with NVML's code of success if there is no sample."""
_ALL: Final = 100
_ATTEMPTS: Final = 3
_UNLIMITED: Final = (0, pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)


def read_use(
    card: str, *, instances: Collection[str], since: int, container_of: Callable[[int], Container | None]
) -> tuple[DeviceUse, ...]:
    """Return the use of a card, or of its MIG `instances`.

    `since` is `sampled_at` of the previous reading; `container_of` returns the container of a PID.

    Raises:
        NvmlError: the card or its processes cannot be read.
    """
    if instances:  # NVML does not measure the utilization of MIG instances
        return tuple(_device(uuid, _handle(uuid), samples=None, container_of=container_of) for uuid in instances)
    handle = _handle(card)
    return (_device(card, handle, samples=_samples(handle, since), container_of=container_of),)


class _Samples(msgspec.Struct):
    """The utilization by PID, and the time of the newest sample."""

    percent: dict[int, float]
    newest: int


def _handle(uuid: str) -> Any:
    return call("nvmlDeviceGetHandleByUUID", uuid)


def _device(
    uuid: str, handle: Any, *, samples: _Samples | None, container_of: Callable[[int], Container | None]
) -> DeviceUse:
    processes = tuple(
        ProcessUse(container_of(pid), memory, samples.percent.get(pid, 0.0) if samples is not None else None)
        for pid, memory in sorted(_memory_by_pid(handle).items())
    )
    containers = {process.container for process in processes if process.container is not None}
    counted = {container: _limited(handle, container.cgroup) for container in containers if container.cgroup}
    return DeviceUse(
        uuid=uuid,
        memory_used_bytes=_if_there(lambda: int(call("nvmlDeviceGetMemoryInfo", handle).used)),
        utilization_percent=_if_there(lambda: int(call("nvmlDeviceGetUtilizationRates", handle).gpu)),
        processes=processes,
        limited={container: used for container, used in counted.items() if used is not None},
        sampled_at=samples.newest if samples is not None else 0,
    )


def _memory_by_pid(handle: Any) -> dict[int, int | None]:
    """Return the memory of each process. One with compute and graphics is in several lists, with the same memory."""
    memory: dict[int, int | None] = {}
    for function in _PROCESSES:
        try:
            processes = call(function, handle)
        except NotThereError:
            if function == _PROCESSES[0]:
                raise  # without it nothing is known
            continue
        for process in processes:
            known = memory.get(process.pid, 0)
            used = process.usedGpuMemory
            memory[process.pid] = None if used is None or known is None else max(known, int(used))
    return memory


def _samples(handle: Any, since: int) -> _Samples | None:
    """Return the utilization by each process since a time; None if the driver does not measure it."""
    samples: Sequence[Any] = ()
    for _ in range(_ATTEMPTS):
        try:
            samples = call("nvmlDeviceGetProcessUtilization", handle, since)
        except NvmlError as error:
            if error.code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                continue  # there were more samples than a moment before
            return _Samples({}, since) if error.code in _NO_SAMPLES else None
        break
    else:
        return None
    by_pid: defaultdict[int, list[int]] = defaultdict(list)
    for sample in samples:
        if sample.timeStamp > since:
            by_pid[sample.pid].append(min(int(sample.smUtil), _ALL))
    newest = max((int(sample.timeStamp) for sample in samples), default=since)
    return _Samples({pid: sum(each) / len(each) for pid, each in by_pid.items()}, max(newest, since))


def _limited(handle: Any, cgroup: str) -> int | None:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=cgroup.encode())
    try:
        call("nvmlDeviceGetMemoryLimits_v1", handle, limits)
    except NvmlError:
        return None  # the driver is older, counts by processes only, or does not know the cgroup
    return int(limits.currentUsed) if limits.hardLimit not in _UNLIMITED else None


def _if_there(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except NvmlError:
        return None
