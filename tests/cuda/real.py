"""A machine with a GPU on which processes take the place of containers, under the real driver, MPS and HAMi-core.

Without a container runtime, a process has the environment of a container, and for isolation `cuda` a control group
whose limits this module sets through NVML, as the hook of NVIDIA's toolkit does. Everything that reads NVML runs in a
process of its own, because other tests load a stub of its library.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest

from allocation.isolation import Isolation
from allocation.node_isolation import NodeIsolation
from tests.cuda.programs import Container, Programs
from tests.support.patience import PATIENCE_S

CGROUPS: Final = Path("/sys/fs/cgroup")
SLACK_MIB: Final = 1024
"""What a context, its libraries and the steps of the probe take of a limit at most."""
LEAST_MIB: Final = 10240
"""The memory of a card for two containers of 3000 and 5000 MiB, and what CUDA itself takes for them."""
_STEP_MIB: Final = 64
_MOST_MIB: Final = 8192
"""A limit that does not hold shows before a neighbour runs out of memory."""
_DAEMON: Final = "nvidia-cuda-mps-control"

_FIND: Final = """
import msgspec, sys
from agent import isolation
from agent.nvml.source import NvmlSource
from agent.settings import AgentSettings
from allocation.delivery import NodeDelivery, Toolkit
settings = AgentSettings(mps_pipe_directory=sys.argv[1])
with NvmlSource(node="n1", settings=settings, wake=lambda: None) as source:
    version = source.read()["n1"].driver_version
found = isolation.find(settings, driver_version=version, delivery=NodeDelivery("cdi", Toolkit("cdi", "1.20.1")))
sys.stdout.buffer.write(msgspec.json.encode((version, found)))
"""
_LIMIT: Final = """
import pynvml, sys
pynvml.nvmlInit()
for uuid in sys.argv[3:]:
    card = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    most = int(sys.argv[2]) << 20
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=sys.argv[1].encode(), softLimit=most, hardLimit=most)
    pynvml.nvmlDeviceSetMemoryLimits_v1(card, limits)
"""


def python(code: str, *arguments: str) -> bytes:
    """Run code in a process that has never loaded the stub; return what it prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def offered(*, mps: Path | str = "") -> tuple[str, NodeIsolation]:
    """Return the version of the driver, and what the agent offers here; a container runtime is taken to be new enough.

    `mps` is the pipe directory of a daemon.
    """
    return msgspec.json.decode(python(_FIND, str(mps)), type=tuple[str, NodeIsolation])


def require(isolation: Isolation, found: NodeIsolation) -> None:
    """Skip the test where the agent does not offer an isolation, with the agent's reason."""
    for problem in found.problems:
        if problem.isolation == isolation.value:
            pytest.skip(f"isolation {isolation.value}: {problem.message}")


def require_cgroups() -> None:
    """Skip the test where no control group can be made."""
    if os.geteuid() != 0:
        pytest.skip("a control group of its own needs root")
    if not (CGROUPS / "cgroup.controllers").is_file():
        pytest.skip("this machine has no control groups of version 2")
    if not os.access(CGROUPS, os.W_OK) or os.statvfs(CGROUPS).f_flag & os.ST_RDONLY:
        pytest.skip(f"{CGROUPS} is read-only: run the tests outside of a container")


def cards() -> dict[str, int]:
    """Return the MiB of each card that is not in MIG mode, by UUID; skip the test without one."""
    query = ["nvidia-smi", "--query-gpu=uuid,memory.total,mig.mode.current", "--format=csv,noheader,nounits"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(", ") for line in listed]
    # An ordinal counts the cards of the machine, because nothing hides the others.
    whole = {uuid: int(mib) for uuid, mib, mode in rows if mode != "Enabled"}
    if not whole or rows[0][2] == "Enabled":
        pytest.skip("the first card of this machine is in MIG mode")
    if (found := int(rows[0][1])) < LEAST_MIB:
        pytest.skip(f"the first card of this machine has {found} MiB, and two containers need {LEAST_MIB}")
    return whole


@contextmanager
def mps_daemon() -> Iterator[Path]:
    """Run a control daemon of MPS, and yield its pipe directory, which is its own, so that it serves no other program.

    The path is short, because it becomes that of sockets.
    """
    if shutil.which(_DAEMON) is None:
        pytest.skip(f"{_DAEMON} is not installed")
    with TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run([_DAEMON, "-d"], env=environment, check=True, timeout=PATIENCE_S)
        try:
            yield Path(folder)
        finally:
            subprocess.run([_DAEMON], env=environment, input="quit\n", text=True, check=False, timeout=PATIENCE_S)


class RealNode:
    """A machine with a GPU, as a node.

    Attributes:
        cards: the MiB of each card by UUID, in the order of the driver.
        slack_mib: how much less than its limit a process may get.
    """

    slack_mib = SLACK_MIB

    def __init__(self, programs: Programs, folder: Path, *, library: str, mps: Path | str = "") -> None:
        """Use HAMi-core's `library` and the pipe directory `mps` of a daemon; `folder` is for what containers share."""
        self.cards = cards()
        self._programs = programs
        self._folder = folder
        self._library = library
        self._mps = mps
        self._containers: dict[str, Container] = {}

    def start(self, name: str, environment: Mapping[str, str], *, preload: bool = False) -> Container:
        """Start a container, as a process without any confinement but its limits."""
        if name in self._containers:
            self.remove(name)
        own = {
            **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
            "CUDA_MPS_PIPE_DIRECTORY": str(self._mps or self._folder / "no-daemon"),
            # A container has a folder /tmp of its own.
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self._folder / f"{name}.cache"),
        }
        if preload:
            own["LD_PRELOAD"] = self._library
        probe = [str(self._programs.probe)]
        if limit := environment.get("NVIDIA_GPU_MEMORY_LIMIT"):
            group = _cgroup(name)
            group.mkdir()
            python(_LIMIT, str(group), limit, *environment["CUDA_VISIBLE_DEVICES"].split(","))
            probe = in_cgroup(group, probe)
        container = Container(probe, {**own, **environment}, step_mib=_STEP_MIB, most_mib=_MOST_MIB)
        self._containers[name] = container
        return container

    def remove(self, name: str) -> None:
        """End a container; its control group goes, and with it the limit."""
        self._containers.pop(name).end()
        if _cgroup(name).is_dir():
            _cgroup(name).rmdir()

    def close(self) -> None:
        """End all containers."""
        for name in [*self._containers]:
            self.remove(name)


def in_cgroup(group: Path, command: list[str]) -> list[str]:
    """Return the command that runs another one in a control group."""
    return ["sh", "-c", f'echo $$ > {json.dumps(str(group / "cgroup.procs"))} && exec "$@"', "sh", *command]


def _cgroup(name: str) -> Path:
    return CGROUPS / f"tranche-gpu-test-{os.getpid()}-{name}"
