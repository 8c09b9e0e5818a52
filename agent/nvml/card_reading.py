"""One reading of one card through NVML.

The identity and the memory of a card must be readable. Every other value is optional: one that cannot be read is None,
so that the previous value is kept, and adds a note for the log; one that the card does not have is zero or empty.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pynvml

from agent.inventory import UUID
from agent.nvml.mig_reading import MigReading, read_mig
from agent.nvml.nvlink import SWITCH, Link
from agent.nvml.nvml import NotThereError, NvmlError, UnusableCardError, bus_id, call, field
from agent.nvml.pcie import Place
from allocation.topology.layout import NUMA_UNKNOWN

T = TypeVar("T")

_MIB: Final = 2**20
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
_NO_LINKS: Final[tuple[Link, ...]] = ()
_RECOVERY: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the card",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "a drain of its peers",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "a drain and a reset of the card",
}


class UnreadableCardError(Exception):
    """A card cannot be used or described; `uuid` is empty if not even the UUID could be read."""

    def __init__(self, reason: str, *, uuid: str = "") -> None:
        super().__init__(reason)
        self.uuid = uuid


class CardReading(msgspec.Struct, frozen=True):
    """What NVML reports about a card. None means that a value could not be read this time.

    Attributes:
        uuid: its identity.
        index: its index, valid until the next `nvmlInit`.
        memory_mib: its memory, rounded down.
        model: its name.
        address: its PCI address, which a card keeps: None also if NVML has none.
        numa: the NUMA node of the CPUs next to it, or `NUMA_UNKNOWN`.
        is_mig_enabled: whether it is in MIG mode.
        mig: its MIG profiles and instances; empty if it is not in MIG mode.
        links: its active NVLinks.
        uncorrected: its volatile uncorrected ECC errors; None also if it does not count them.
        recovery: what it needs before it can be used again; empty if nothing.
        notes: what could not be read, and why.
    """

    uuid: str
    index: int
    memory_mib: int
    model: str | None
    address: str | None
    numa: int | None
    is_mig_enabled: bool | None
    mig: MigReading | None
    links: tuple[Link, ...] | None
    uncorrected: int | None
    recovery: str
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        """Where it is: by its PCI address, or by its UUID if the address is unknown."""
        return Place(self.index, self.address or self.uuid)

    def completed(self, previous: "CardReading | None") -> "CardReading":
        """Return this reading with the values that could not be read taken from the `previous` one."""
        if previous is None:
            return self
        optional = ("model", "address", "numa", "is_mig_enabled", "mig", "links")
        missing = [name for name in optional if getattr(self, name) is None]
        return msgspec.structs.replace(self, **{name: getattr(previous, name) for name in missing})


def read_card(index: int, *, sysfs: Path) -> CardReading:
    """Read the card with that index.

    Raises:
        UnreadableCardError: the card has no readable identity or memory, or is lost.
    """
    uuid = ""
    notes: list[str] = []

    def attempt(read: Callable[[], T], *, absent: T) -> T | None:
        try:
            return read()
        except NotThereError:
            return absent
        except UnusableCardError:
            raise
        except NvmlError as error:
            notes.append(str(error))
            return None

    try:
        handle = call("nvmlDeviceGetHandleByIndex", index)
        uuid = _uuid(handle)
        memory_mib = _memory_mib(handle)
        address = attempt(lambda: bus_id(call("nvmlDeviceGetPciInfo", handle)), absent=None)
        is_mig_enabled = attempt(lambda: bool(call("nvmlDeviceGetMigMode", handle)[0]), absent=False)
        return CardReading(
            uuid=uuid,
            index=index,
            memory_mib=memory_mib,
            model=attempt(lambda: str(call("nvmlDeviceGetName", handle)), absent=""),
            address=address,
            numa=attempt(lambda: _numa(handle, address, sysfs), absent=NUMA_UNKNOWN),
            is_mig_enabled=is_mig_enabled,
            mig=(
                attempt(lambda: read_mig(handle, memory_mib=memory_mib), absent=MigReading())
                if is_mig_enabled
                else MigReading()
            ),
            links=attempt(lambda: _links(handle), absent=_NO_LINKS),
            uncorrected=attempt(lambda: _uncorrected(handle), absent=None),
            recovery=attempt(lambda: _recovery(handle), absent="") or "",
            notes=tuple(notes),
        )
    except NvmlError as error:
        raise UnreadableCardError(str(error), uuid=uuid) from error


def _uuid(handle: Any) -> str:
    uuid = str(call("nvmlDeviceGetUUID", handle))
    if not UUID.fullmatch(uuid):
        raise NvmlError(f"nvmlDeviceGetUUID: {uuid!r} is not a UUID")
    return uuid


def _memory_mib(handle: Any) -> int:
    """Return the card's total memory as `nvidia-smi` and HAMi show it, including what the driver reserves."""
    memory = int(call("nvmlDeviceGetMemoryInfo", handle).total) // _MIB
    if memory <= 0:
        raise NvmlError("nvmlDeviceGetMemoryInfo: the card has no memory")
    return memory


def _numa(handle: Any, address: str | None, sysfs: Path) -> int:
    """Return the NUMA node of the CPUs next to the card, or `NUMA_UNKNOWN` without one.

    The kernel reports it, or -1 without one. NVML's own function works only if GPUs are NUMA nodes themselves, so it is
    the fallback.
    """
    if address:
        try:
            node = int((sysfs / "bus" / "pci" / "devices" / address / "numa_node").read_text())
        except (OSError, ValueError):
            node = -1
        if node >= 0:
            return node
    return max(int(call("nvmlDeviceGetNumaNodeId", handle)), NUMA_UNKNOWN)


def _uncorrected(handle: Any) -> int | None:
    return int(
        call("nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )


def _recovery(handle: Any) -> str:
    action = field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    if action == pynvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return ""
    return f"the driver asks for {_RECOVERY.get(action, f'recovery action {action}')}"


def _links(handle: Any) -> tuple[Link, ...]:
    """Return the active links of a card: where each leads, and how fast it is.

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
