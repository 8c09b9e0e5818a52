"""What the processes of a node use of its cards, as a source reads it."""

from collections.abc import Mapping

import msgspec

from agent.processes import Container


class ProcessUse(msgspec.Struct, frozen=True):
    """One process.

    Attributes:
        container: the container that it belongs to; None if it belongs to none.
        memory_bytes: its device memory; None if the driver does not say.
        percent: of the card's time in which its kernels ran since the previous reading; None if the driver does not
            say of any process.
    """

    container: Container | None
    memory_bytes: int | None
    percent: float | None


class DeviceUse(msgspec.Struct, frozen=True):
    """A card or MIG instance with its processes.

    Attributes:
        memory_used_bytes: the used memory of the device.
        utilization_percent: of the time in which a kernel ran.
        processes: its processes.
        limited: the memory that the driver has counted itself, of containers with a memory limit of the driver.
        sampled_at: the time of the newest sample, by the driver's clock in µs; `since` of the next reading.
    """

    uuid: str
    memory_used_bytes: int | None
    utilization_percent: int | None
    processes: tuple[ProcessUse, ...]
    limited: Mapping[Container, int]
    sampled_at: int = 0


class Measured(msgspec.Struct, frozen=True):
    """One reading of all cards: the devices of each card by its UUID, and why the other cards were not read."""

    read: Mapping[str, tuple[DeviceUse, ...]]
    unread: Mapping[str, str]
