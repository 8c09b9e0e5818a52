"""The isolations that this node offers: what can enforce the limits of containers that share a card.

The agent offers what it asked for and found: pods that chose an isolation are placed by it, and a container whose
limits nothing enforces would take what its neighbours were promised. For each that is missing it reports the reason.
"""

import errno
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agent.nvml import nvml
from agent.settings import AgentSettings
from allocation.delivery import NodeDelivery, Toolkit
from allocation.isolation import Isolation
from allocation.node_isolation import IsolationProblem, NodeIsolation

_DRIVER: Final = 615
"""The first major version whose driver enforces limits of memory."""
_TOOLKIT: Final = (1, 20, 1)
"""The first version of NVIDIA's container toolkit that sets them when it creates a container."""
_SET_LIMITS: Final = "nvmlDeviceSetMemoryLimits_v1"
_ELF: Final = b"\x7fELF"
_ANSWER_SECONDS: Final = 2.0


def find(
    settings: AgentSettings,
    *,
    driver_version: str,
    delivery: NodeDelivery,
    has_function: Callable[[str], bool] = nvml.has_function,
) -> NodeIsolation:
    """Return what this node offers now, by its driver, its delivery and its files; `has_function` asks NVML."""
    checks = {
        Isolation.HAMI_CORE: hami_core_problem(settings.hami_core_library),
        Isolation.MPS: mps_problem(settings.mps_pipe_directory),
        Isolation.CUDA: next(_cuda(settings, driver_version, delivery, has_function), ""),
    }
    if delivery.mode == "nvfractions":
        checks |= dict.fromkeys((Isolation.HAMI_CORE, Isolation.MPS), _FRACTIONS)
    return NodeIsolation(
        frozenset(each for each, problem in checks.items() if not problem),
        tuple(IsolationProblem(each.value, problem) for each, problem in checks.items() if problem),
    )


def hami_core_problem(library: str) -> str:
    """Return why HAMi-core cannot be loaded; empty if its library can."""
    if not library:
        return "agent.hami_core_library is empty: withheld"
    try:
        with Path(library).open("rb") as file:
            return "" if file.read(len(_ELF)) == _ELF else f"{library} is not a shared library"
    except OSError as error:
        return f"{library}: {error.strerror}"


def mps_problem(pipe_directory: str) -> str:
    """Return why no daemon of MPS can be used; empty if one answers."""
    if not pipe_directory:
        return "agent.mps_pipe_directory is empty: withheld"
    control = Path(pipe_directory) / "control"
    try:
        _ask(control)
    except OSError as error:
        reason = _NO_DAEMON if error.errno in (errno.ECONNREFUSED, errno.ENXIO) else error.strerror or str(error)
        return f"{control}: {reason}"
    return ""


_FRACTIONS: Final = "kai-gpu-fractioning (agent.delivery: nvfractions) limits each container by its own daemon of MPS"
_NO_DAEMON: Final = "no MPS control daemon listens"


def _ask(control: Path) -> None:
    """Open the control socket or pipe, which succeeds only while a process has its other end.

    Raises:
        OSError: it does not exist, no process listens, or this process may not use it.
    """
    if stat.S_ISFIFO(control.stat().st_mode):
        os.close(os.open(control, os.O_WRONLY | os.O_NONBLOCK))
        return
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(_ANSWER_SECONDS)
            try:
                client.connect(str(control))
            except OSError as error:
                if error.errno == errno.EPROTOTYPE and kind is socket.SOCK_STREAM:
                    continue
                raise
            return


def _cuda(
    settings: AgentSettings, driver_version: str, delivery: NodeDelivery, has_function: Callable[[str], bool]
) -> Iterator[str]:
    """Yield what the driver's own limits lack here.

    Where the driver or the control groups are too old, NVIDIA's toolkit would not start a container with limits.
    """
    if _numbers(driver_version) < (_DRIVER,):
        yield f"the driver must be {_DRIVER} or newer, and is {driver_version or 'unknown'}"
    elif not has_function(_SET_LIMITS):
        yield f"the NVML of driver {driver_version} has no {_SET_LIMITS}"
    if not (Path(settings.sysfs) / "fs/cgroup/cgroup.controllers").is_file():
        yield "the node has no control groups of version 2"
    if settings.memory_limits == "toolkit":
        yield from _toolkit(delivery.toolkit)
    elif delivery.mode != "nri" or not delivery.is_registered:
        yield "the agent, which is to set limits, is not registered with the container runtime (agent.delivery: nri)"


def _toolkit(toolkit: Toolkit | None) -> Iterator[str]:
    """Yield what NVIDIA's toolkit lacks to set the driver's limits."""
    if toolkit is None:
        yield "the agent does not see NVIDIA's container toolkit (docs/agent.md#delivery: mount the host's folders)"
    elif toolkit.mode == "legacy":
        yield f"{toolkit} sets no limits: it must be in mode auto, cdi or jit-cdi"
    elif _numbers(toolkit.version) < _TOOLKIT:
        wanted = ".".join(map(str, _TOOLKIT))
        yield f"NVIDIA's container toolkit must be {wanted} or newer, and is {toolkit.version or 'unknown'}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version, to compare; none of one that cannot be read."""
    match = re.match(r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})", version)
    return tuple(int(number) for number in match[1].split(".")) if match else ()
