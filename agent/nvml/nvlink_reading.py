"""Reads the active NVLinks of a card: where each leads, and how fast it is."""

from typing import Any, Final

import pynvml

from agent.nvml.nvlink import SWITCH, Link
from agent.nvml.nvml import NotThereError, bus_id, call, field

_NOMINAL_MB_PER_S: Final = {
    pynvml.NVML_NVLINK_VERSION_1_0: 20_000,
    pynvml.NVML_NVLINK_VERSION_2_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_2_2: 25_000,
    pynvml.NVML_NVLINK_VERSION_3_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_3_1: 25_000,
    pynvml.NVML_NVLINK_VERSION_4_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_5_0: 50_000,
}
"""One link of each version in one direction, by NVML's number of the version.

A P100 has four links and 160 GB/s in both directions (NVIDIA's white paper WP-08019). Of the later generations a V100
has six and 300 GB/s, an A100 twelve and 600 GB/s, an H100 18 and 900 GB/s, a B200 18 and 1,800 GB/s
(https://www.nvidia.com/en-us/data-center/nvlink/).
"""


def read_links(handle: Any) -> tuple[Link, ...]:
    """Return the active links of a card.

    Raises:
        NvmlError: a link could not be read.
    """
    remotes: dict[int, str] = {}
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if call("nvmlDeviceGetNvLinkState", handle, number) == pynvml.NVML_FEATURE_ENABLED:
                remotes[number] = _remote(handle, number)
        except NotThereError:
            continue
    return tuple(Link(remote, _speed(handle, number)) for number, remote in remotes.items())


def _remote(handle: Any, number: int) -> str:
    try:
        if call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return SWITCH
    except NotThereError:
        pass  # a driver that does not report the type reports the address, which joins the cards of a switch, too
    try:
        return bus_id(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, number))
    except NotThereError:
        return ""


def _speed(handle: Any, number: int) -> int:
    """Return MB/s in one direction, as the driver reports it; else what links of this version have; 0 if unknown."""
    for identifier, scope in (
        (pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, number),
        (pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0),
    ):
        try:
            return field(handle, identifier, scope)
        except NotThereError:
            continue
    try:
        return _NOMINAL_MB_PER_S.get(call("nvmlDeviceGetNvLinkVersion", handle, number), 0)
    except NotThereError:
        return 0
