"""The environment variables that can make NVIDIA's stack or a limiter deviate from a pod's allocation.

Admission applies this table, the policies of manifests/base repeat it, docs/threat-model.md prints it.
"""

import enum
from typing import Final

import msgspec


class Ruling(enum.Enum):
    """What admission does with a variable that a user sets in a container of a managed pod."""

    SET = "set"
    """Replaced by the value that tranche sets, or removed if it sets none; the user is warned."""
    REMOVED = "removed"
    """Removed; the user is warned."""
    BY_ISOLATION = "set or removed"
    """Replaced by the value that tranche sets where the pod's isolation reads the variable, else removed."""
    ADMITTED = "admitted"
    """Left as it is."""


class Variable(msgspec.Struct, frozen=True):
    """A row of the table.

    Attributes:
        name: of the variable; a trailing `*` matches every variable with this prefix.
        ruling: what admission does with a user's value.
        reason: why, as printed in the threat model.
    """

    name: str
    ruling: Ruling
    reason: str

    def covers(self, name: str) -> bool:
        """Whether the row covers the environment variable `name`."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


TABLE: Final = (
    Variable("NVIDIA_VISIBLE_DEVICES", Ruling.SET, "the cards that NVIDIA's runtime gives the container"),
    Variable("CUDA_VISIBLE_DEVICES", Ruling.SET, "the cards that CUDA sees, and their order"),
    Variable("CUDA_DEVICE_MEMORY_LIMIT", Ruling.SET, "HAMi-core's memory limit of a card that has none of its own"),
    Variable("CUDA_DEVICE_MEMORY_LIMIT_*", Ruling.SET, "HAMi-core's memory limit of a single card"),
    Variable("CUDA_DEVICE_SM_LIMIT", Ruling.SET, "HAMi-core's compute limit of all cards"),
    Variable("GPU_CORE_UTILIZATION_POLICY", Ruling.SET, "when HAMi-core limits compute; `disable` turns the limit off"),
    Variable(
        "CUDA_DEVICE_SM_LIMIT_*",
        Ruling.REMOVED,
        "HAMi-core's compute limit of a single card, which overrides the limit of all cards",
    ),
    Variable("CUDA_DISABLE_CONTROL", Ruling.REMOVED, "HAMi's plugin leaves HAMi-core out of the container"),
    Variable("CUDA_OVERSUBSCRIBE", Ruling.REMOVED, "HAMi-core lets allocations exceed the card into host memory"),
    Variable(
        "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        Ruling.REMOVED,
        "the file in which HAMi-core adds up the container's processes; another file starts at 0",
    ),
    Variable("ACTIVE_OOM_KILLER", Ruling.REMOVED, "`false` keeps HAMi-core from ending a process over its limit"),
    Variable(
        "CUDA_MPS_*",
        Ruling.BY_ISOLATION,
        "which MPS daemon a process uses, and its share of compute and memory there; set by isolation `mps`",
    ),
    Variable(
        "NVIDIA_GPU_MEMORY_*",
        Ruling.BY_ISOLATION,
        "the memory limit that NVIDIA's toolkit 1.20.1 hands to the driver; set by isolation `cuda`",
    ),
    Variable("NVIDIA_MIG_*", Ruling.REMOVED, "the right to divide or to monitor cards in MIG mode"),
    Variable("NVIDIA_IMEX_CHANNELS", Ruling.REMOVED, "channels to the memory of cards on other nodes"),
    Variable("NVIDIA_NVSWITCH", Ruling.REMOVED, "the devices that manage the links between all cards of a node"),
    Variable(
        "CUDA_TASK_PRIORITY",
        Ruling.ADMITTED,
        "0 or 1, as any user may request with `nvidia.com/priority`, which takes precedence",
    ),
    Variable("CUDA_DEVICE_ORDER", Ruling.ADMITTED, "orders the container's own cards"),
    Variable("LIBCUDA_LOG_LEVEL", Ruling.ADMITTED, "how much HAMi-core logs"),
    Variable("NVIDIA_DRIVER_CAPABILITIES", Ruling.ADMITTED, "which driver libraries are mounted; it adds no card"),
    Variable("NVIDIA_REQUIRE_*", Ruling.ADMITTED, "driver versions without which the container does not start"),
    Variable("NVIDIA_DISABLE_REQUIRE", Ruling.ADMITTED, "skips that check"),
    Variable("NVIDIA_GDRCOPY", Ruling.ADMITTED, "a device that copies to the container's own cards"),
    Variable("NVIDIA_GDS", Ruling.ADMITTED, "devices of storage"),
    Variable("NVIDIA_MOFED", Ruling.ADMITTED, "devices of the network"),
    Variable(
        "NCCL_IB_HCA",
        Ruling.ADMITTED,
        "which adapters NCCL uses; the node's where a claim asks for the network and the container does not set it",
    ),
    Variable("NCCL_NET_GDR_LEVEL", Ruling.ADMITTED, "how far adapters reach into cards; the same"),
    Variable(
        "CUFILE_ENV_PATH_JSON",
        Ruling.ADMITTED,
        "cuFile's configuration; that of the image where a claim asks for storage and the container does not set it",
    ),
    Variable(
        "LD_PRELOAD",
        Ruling.ADMITTED,
        "allocators need it; HAMi's plugin loads HAMi-core by `/etc/ld.so.preload`, which it does not replace",
    ),
    Variable(
        "LD_LIBRARY_PATH",
        Ruling.ADMITTED,
        "images need it; it allows a program nothing that the program cannot do itself",
    ),
)
"""Every variable that was examined. Users may set any variable that no row covers."""


def is_owned(name: str) -> bool:
    """Whether users may not set the environment variable `name` in a managed pod."""
    return name in _OWNED or name.startswith(_OWNED_PREFIXES)


def ruling(name: str) -> Ruling:
    """Return what admission does with the environment variable `name`, by the first row that covers it."""
    return next((row.ruling for row in TABLE if row.covers(name)), Ruling.ADMITTED)


_NAMES: Final = tuple(row.name for row in TABLE if row.ruling is not Ruling.ADMITTED)
_OWNED: Final = frozenset(name for name in _NAMES if not name.endswith("*"))
_OWNED_PREFIXES: Final = tuple(name[:-1] for name in _NAMES if name.endswith("*"))
