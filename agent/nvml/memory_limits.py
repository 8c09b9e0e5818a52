"""The driver's own limits of memory: what the processes of a control group may use of each card (driver 615)."""

from collections.abc import Mapping

import msgspec
import pynvml

from agent.nvml.nvml import call

_MIB = 2**20


class Limit(msgspec.Struct, frozen=True):
    """What a control group may use of one card, in MiB.

    Attributes:
        request: how much it has for certain; above this the driver may take memory back when others need it.
        limit: the most; beyond this it refuses an allocation.
    """

    request: int
    limit: int


def apply(cgroup: str, limits: Mapping[str, Limit]) -> None:
    """Set the limits of a control group, which end when the group is removed.

    With the kernel's controller `dmem` the driver adds a request to those of the groups above as well, where it stays
    unless it is taken back before the group is removed (NVIDIA's documentation of MPS, memory partitioning). The agent
    cannot: containerd tells its plugins of the end of a container when its group is gone. It refuses nothing there.

    Args:
        cgroup: its path in sysfs.
        limits: those of each card, by UUID.

    Raises:
        NvmlError: the driver refuses one.
    """
    call("nvmlInit")  # NVML counts how often it is open: the inventory's opening it again does not end this use of it
    try:
        for card, of_card in limits.items():
            limit = pynvml.c_nvmlSetMemoryLimits_v1_t(
                nameSpace=cgroup.encode(), softLimit=of_card.request * _MIB, hardLimit=of_card.limit * _MIB
            )
            call("nvmlDeviceSetMemoryLimits_v1", call("nvmlDeviceGetHandleByUUID", card), limit)
    finally:
        call("nvmlShutdown")
