"""One look at one card through NVML.

What makes a card a card (identity, memory) must be readable. Everything else is read if it can be: a value that
cannot be read is None and stays as it was, with a note for the log; one that the card does not have is its zero.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pynvml

from agent.inventory import UUID
from agent.mig_reading import MigReading, read_mig
from agent.nvlink import SWITCH, Link
from agent.nvml import NotThereError, NvmlError, UnusableCardError, bus_id, call, field

T = TypeVar("T")

_MIB: Final = 2**20
_NO_LINKS: Final[tuple[Link, ...]] = ()
_RECOVERY: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the card",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "a drain of its peers",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "a drain and a reset of the card",
}


class UnreadableCardError(Exception):
    """A card cannot be used or described; `uuid` is empty where not even that could be read."""

    def __init__(self, reason: str, *, uuid: str = "") -> None:
        super().__init__(reason)
        self.uuid = uuid


class CardReading(msgspec.Struct, frozen=True):
    """What NVML says of a card. None means that a value could not be read this time.

    Attributes:
        uuid: its identity.
        index: its index, valid until the next `nvmlInit`.
        memory_mib: its memory, rounded down.
        model: its name.
        address: its PCI address.
        numa: the NUMA node of the CPUs next to it; 0 where unknown.
        mig: whether it is in MIG mode.
        division: what it can be and is divided into; empty where it is not in MIG mode.
        links: its active NVLinks.
        uncorrected: its volatile uncorrected ECC errors; None also where it does not count them.
        recovery: what it needs before it can be used again; empty where nothing.
        notes: what could not be read, and why.
    """

    uuid: str
    index: int
    memory_mib: int
    model: str | None
    address: str | None
    numa: int | None
    mig: bool | None
    division: MigReading | None
    links: tuple[Link, ...] | None
    uncorrected: int | None
    recovery: str
    notes: tuple[str, ...] = ()

    def completed(self, before: "CardReading | None") -> "CardReading":
        """Answer this reading with what was known `before` in the place of what could not be read."""
        if before is None:
            return self
        missing = [
            name for name in ("model", "address", "numa", "mig", "division", "links") if getattr(self, name) is None
        ]
        return msgspec.structs.replace(self, **{name: getattr(before, name) for name in missing})


def read_card(index: int, *, sysfs: Path) -> CardReading:
    """Look at the card with that index.

    Raises:
        UnreadableCardError: it has no readable identity or memory, or is lost.
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
        address = attempt(lambda: bus_id(call("nvmlDeviceGetPciInfo", handle)), absent="")
        mig = attempt(lambda: bool(call("nvmlDeviceGetMigMode", handle)[0]), absent=False)
        return CardReading(
            uuid=uuid,
            index=index,
            memory_mib=memory_mib,
            model=attempt(lambda: str(call("nvmlDeviceGetName", handle)), absent=""),
            address=address,
            numa=attempt(lambda: _numa(handle, address, sysfs), absent=0),
            mig=mig,
            division=(
                attempt(lambda: read_mig(handle, memory_mib=memory_mib), absent=MigReading()) if mig else MigReading()
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
        raise NvmlError(f"nvmlDeviceGetUUID: {uuid!r} is no UUID")
    return uuid


def _memory_mib(handle: Any) -> int:
    """All of the card's memory, as `nvidia-smi` and HAMi say it; what the driver reserves is part of it."""
    memory = int(call("nvmlDeviceGetMemoryInfo", handle).total) // _MIB
    if memory <= 0:
        raise NvmlError("nvmlDeviceGetMemoryInfo: the card has no memory")
    return memory


def _numa(handle: Any, address: str | None, sysfs: Path) -> int:
    """The node of the CPUs next to the card; the kernel knows it, as -1 where there is none.

    NVML's own function answers only where GPUs are NUMA nodes themselves, so it is asked second.
    """
    if address:
        try:
            node = int((sysfs / "bus" / "pci" / "devices" / address / "numa_node").read_text())
        except (OSError, ValueError):
            node = -1
        if node >= 0:
            return node
    return max(int(call("nvmlDeviceGetNumaNodeId", handle)), 0)


def _links(handle: Any) -> tuple[Link, ...]:
    found: dict[int, str] = {}
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if call("nvmlDeviceGetNvLinkState", handle, number) == pynvml.NVML_FEATURE_ENABLED:
                found[number] = _remote(handle, number)
        except NotThereError:
            continue
    return tuple(Link(remote, _speed(handle, number)) for number, remote in found.items())


def _remote(handle: Any, number: int) -> str:
    try:
        if call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return SWITCH
    except NotThereError:
        pass  # a driver that cannot tell the type tells the address, which joins the cards of a switch as well
    try:
        return bus_id(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, number))
    except NotThereError:
        return ""


def _speed(handle: Any, number: int) -> int:
    try:
        return field(handle, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, number)
    except NotThereError:
        try:
            return field(handle, pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)
        except NotThereError:
            return 0


def _uncorrected(handle: Any) -> int | None:
    return int(
        call("nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )


def _recovery(handle: Any) -> str:
    action = field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    if action == pynvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return ""
    return f"the driver asks for {_RECOVERY.get(action, f'recovery action {action}')}"
