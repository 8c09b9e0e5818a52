"""Whether the kernel lets a network adapter read and write the memory of NVIDIA's cards (GPUDirect RDMA).

Either of two ways suffices. A peer memory module serves every adapter on PCI; it can be loaded only if the RDMA drivers
accept it. DMA-BUF needs NVIDIA's open kernel module and an RDMA driver that imports its buffers, such as mlx5 since
Linux 5.12. Which versions of other drivers do cannot be seen, so their adapters count only with a peer memory module.
"""

import re
from pathlib import Path
from typing import Final

from agent import kernel_files

_PEER_MEMORY_MODULES: Final = ("nvidia_peermem", "nv_peer_mem")
"""NVIDIA's module, and its predecessor from Mellanox."""
_OPEN_MODULE: Final = "Open Kernel Module"
_DMA_BUF_DRIVER: Final = "mlx5_core"
_DMA_BUF_KERNEL: Final = (5, 12)


def is_capable(driver: str, *, sysfs: Path, procfs: Path) -> bool:
    """Return whether adapters with this kernel driver can; False if it is empty, and if this is unknown."""
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
