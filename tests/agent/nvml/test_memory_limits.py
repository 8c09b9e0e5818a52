"""The driver's limits of a control group, as NVML takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.nvml import memory_limits
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from tests.nvml.stub import Hardware, cards

if TYPE_CHECKING:
    from pathlib import Path

CGROUP = "/sys/fs/cgroup/kubepods/one"


def limits(hardware: Hardware) -> list[str]:
    """Return what was set: card, control group, soft and hard limit in MiB."""
    path: Path = hardware.path.with_name(f"{hardware.path.name}.limits")
    return path.read_text().splitlines() if path.exists() else []


def test_each_card_gets_its_own_limit(hardware: Hardware) -> None:
    """In bytes, what it has for certain and the most; NVML is opened for it, whoever else has it open."""
    hardware.has(*cards(2))
    memory_limits.apply(CGROUP, {"GPU-0": Limit(3000, 3000), "GPU-1": Limit(3000, 5000)})
    assert limits(hardware) == [f"GPU-0 {CGROUP} 3000 3000", f"GPU-1 {CGROUP} 3000 5000"]


def test_what_the_driver_refuses_is_an_error(hardware: Hardware) -> None:
    """A limit above the card, a card that is not there, a driver that has none."""
    hardware.has(*cards(1))
    with pytest.raises(NvmlError, match="nvmlDeviceSetMemoryLimits_v1: Invalid Argument"):
        memory_limits.apply(CGROUP, {"GPU-0": Limit(81560, 81560)})
    with pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID"):
        memory_limits.apply(CGROUP, {"GPU-7": Limit(1, 1)})
    hardware.cards[0].lines.append("error nvmlDeviceSetMemoryLimits_v1 4")
    hardware.write()
    with pytest.raises(NvmlError, match="nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions"):
        memory_limits.apply(CGROUP, {"GPU-0": Limit(3000, 3000)})
    assert limits(hardware) == []
