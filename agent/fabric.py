"""The network adapters of this node for direct transfers, and its direct path to storage, as its kernel shows them.

A container sees both in its own sysfs and procfs, so the agent needs no folder of the host. The exception is a node
that assigns adapters to network namespaces (`rdma system set netns exclusive`): there the agent sees only those of its
own namespace.

An adapter is an InfiniBand or RoCE device. Devices of other kinds (iWARP, EFA) are left out, because NCCL_IB_HCA does
not name them, and so are virtual functions, because they transfer through the port of their physical function.

GPUDirect Storage (cuFile) can be used if the kernel module nvidia-fs is loaded. A cufile.json on the host does not
count: containers have their own, and without the module cuFile may copy everything through the host's memory.
"""

import re
from pathlib import Path
from typing import Final

from agent import kernel_files
from agent.settings import AgentSettings
from allocation.fabric import CuFile, Fabric, Hca, HcaPort, PortState
from allocation.quantity import INT32_MAX
from allocation.topology.layout import NUMA_UNKNOWN

HCA_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")
"""The names that are reported: containers get them in an environment variable, separated by commas."""
LINK_LAYERS: Final = ("InfiniBand", "Ethernet", "Unknown")
MOST_HCAS: Final = 64  # these are the limits of the GpuNodeStatus CRD
MOST_PORTS: Final = 16
LONGEST_TEXT: Final = 63

_CHANNEL_ADAPTER: Final = "1: CA"
_PEER_MEMORY_MODULES: Final = ("nvidia_peermem", "nv_peer_mem")
"""NVIDIA's module, and its predecessor from Mellanox."""
_OPEN_MODULE: Final = "Open Kernel Module"
_DMA_BUF_DRIVER: Final = "mlx5_core"
_DMA_BUF_KERNEL: Final = (5, 12)
_STATES: Final[dict[str, PortState]] = {"2": "Initializing", "3": "Armed", "4": "Active"}


def find(settings: AgentSettings) -> Fabric:
    """Return the adapters and the storage path that can be seen on this node now."""
    sysfs, procfs = Path(settings.sysfs), Path(settings.procfs)
    folder = sysfs / "class/infiniband"
    devices = [folder / name for name in kernel_files.names(folder) if _is_adapter(folder / name)]
    return Fabric(
        tuple(_hca(device, sysfs=sysfs, procfs=procfs) for device in _first(devices, MOST_HCAS, of=folder)),
        _cu_file(procfs / "driver/nvidia-fs"),
    )


def port_state(text: str) -> PortState:
    """Return the state that such as `4: ACTIVE` means; a port that is not being set up is `Down`."""
    return _STATES.get(text.partition(":")[0], "Down")


def rate_gbps(text: str) -> int:
    """Return the Gbit/s of such as `400 Gb/sec (4X NDR)`, rounded down.

    Raises:
        ValueError: it is not a rate.
    """
    match = re.match(r"([0-9]{1,6})(\.[0-9]+)? Gb/sec", text)
    if match is None:
        raise ValueError(f"{text[:LONGEST_TEXT]!r} is not a rate in Gb/sec")
    return int(match[1])


def numa_node(text: str) -> int:
    """Return the NUMA node of a device; the kernel writes -1 if it does not know it.

    Raises:
        ValueError: it is not a NUMA node.
    """
    node = int(text[:LONGEST_TEXT])
    if not NUMA_UNKNOWN <= node <= INT32_MAX:
        raise ValueError(f"{node} is not a NUMA node")
    return node


def _is_adapter(device: Path) -> bool:
    if not HCA_NAME.fullmatch(device.name):
        kernel_files.problems.report(
            str(device), "left out: a name may have at most 63 characters, of A-Z, a-z, 0-9, '_', '.' and '-'"
        )
        return False
    is_virtual_function = kernel_files.exists(device / "device/physfn")
    return kernel_files.text(device / "node_type") == _CHANNEL_ADAPTER and not is_virtual_function


def _hca(device: Path, *, sysfs: Path, procfs: Path) -> Hca:
    folder = device / "ports"
    ports = [folder / name for name in kernel_files.names(folder) if re.fullmatch(r"[1-9][0-9]{0,2}", name)]
    model = kernel_files.text(device / "hca_type") or kernel_files.text(device / "board_id")
    return Hca(
        name=device.name,
        model=model[:LONGEST_TEXT],
        ports=tuple(map(_port, _first(ports, MOST_PORTS, of=folder))),
        gpu_direct=_is_capable(_driver(device), sysfs=sysfs, procfs=procfs),
        numa=kernel_files.read(device / "device/numa_node", numa_node, NUMA_UNKNOWN),
    )


def _port(port: Path) -> HcaPort:
    return HcaPort(
        number=int(port.name),
        state=kernel_files.read(port / "state", port_state, "Down"),
        rate_gbps=kernel_files.read(port / "rate", rate_gbps, 0),
        link_layer=kernel_files.read(port / "link_layer", _link_layer, "Unknown"),
    )


def _link_layer(text: str) -> str:
    return text if text in LINK_LAYERS else "Unknown"


def _driver(device: Path) -> str:
    """Return the kernel driver of the adapter's PCI device; empty for an adapter that is software."""
    try:
        return (device / "device/driver").readlink().name
    except OSError:
        return ""


def _first(found: list[Path], most: int, *, of: Path) -> list[Path]:
    excess = f"only the first {most} of {len(found)} are reported" if len(found) > most else ""
    kernel_files.problems.report(f"entries of {of}", excess)
    return found[:most]


def _cu_file(folder: Path) -> CuFile:
    match = re.search(r"\d+(\.\d+)+", kernel_files.text(folder / "version"))
    return CuFile(enabled=kernel_files.exists(folder), version=match[0][:LONGEST_TEXT] if match else "")


def _is_capable(driver: str, *, sysfs: Path, procfs: Path) -> bool:
    """Whether the kernel lets adapters with this driver read and write the memory of NVIDIA's cards (GPUDirect RDMA).

    Either of two ways suffices. A peer memory module serves every adapter on PCI; it can be loaded only if the RDMA
    drivers accept it. DMA-BUF needs NVIDIA's open kernel module and an RDMA driver that imports its buffers, such as
    mlx5 since Linux 5.12. Which versions of other drivers do cannot be seen, so their adapters count only with a peer
    memory module. False if the driver is empty, and if this is unknown.
    """
    if not driver:
        return False
    if any(kernel_files.exists(sysfs / "module" / module) for module in _PEER_MEMORY_MODULES):
        return True
    return driver == _DMA_BUF_DRIVER and _has_open_module(procfs) and _kernel(procfs) >= _DMA_BUF_KERNEL


def _has_open_module(procfs: Path) -> bool:
    return _OPEN_MODULE in kernel_files.text(procfs / "driver/nvidia/version")


def _kernel(procfs: Path) -> tuple[int, int]:
    """Return the version of the kernel; 0.0 if it is unknown."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", kernel_files.text(procfs / "sys/kernel/osrelease"))
    return (int(match[1]), int(match[2])) if match else (0, 0)
