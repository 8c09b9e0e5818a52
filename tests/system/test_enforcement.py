"""A container is held to its limit by what the agent's plugin mounts into it: a real kubelet and containerd 2.

The driver, HAMi-core and the program that allocates until it is refused are stubs (`tests.cuda.programs`), which the
container runtime mounts as it mounts the real ones.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.nri.enforcement import COUNTS, LIBRARY, PIPES, PRELOAD, SHARED_MEMORY
from agent.nri.memory_limits import MemoryLimits
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from agent.settings import AgentSettings
from allocation.isolation import Isolation
from allocation.names import ISOLATION
from lab import cgroups, fleet, wait
from tests.cuda.programs import Programs, build
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import agents_plugin, nvidia_software
from tests.system.test_delivery import delivery, failure, running
from tests.system.test_isolation import offered
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet, pytest.mark.timeout(180)]

CARD_MIB = 8000
PROBE = "/stub/probe"


@pytest.fixture
def settings(tranche_node: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentSettings]:
    """Those of an agent whose node has the stubs, and a folder of a short name, as the path of a socket must be."""
    programs = build(tmp_path_factory.mktemp("programs"))
    folder = Path(tempfile.mkdtemp(prefix="tranche-"))
    folder.chmod(0o755)
    for name in ("pipes", "shm"):
        (folder / name).mkdir()
    (folder / "counts").mkdir()
    (folder / "counts").chmod(0o777)
    uuids = [fleet.card(tranche_node.node_name, index) for index in range(fleet.CARDS_PER_NODE)]
    nvidia_software.write_specs(tranche_node.cdi_specs, uuids, driver=driver(programs, uuids[0], folder / "counts"))
    yield AgentSettings(
        hami_core_library=str(programs.limiter),
        mps_pipe_directory=str(folder / "pipes"),
        mps_shared_memory=str(folder / "shm"),
        nri_files=str(folder / "files"),
    )
    shutil.rmtree(folder)


def driver(programs: Programs, card: str, counts: Path) -> dict[str, Any]:
    """Return what a CDI specification adds to each container: the stub of the driver, and all that it is linked to."""
    printed = subprocess.run(["ldd", programs.probe, programs.limiter], capture_output=True, text=True, check=True)
    linked = {path for path in re.findall(r"(/\S+) \(0x", printed.stdout) if path.startswith("/lib")}
    (libc,) = (Path(path) for path in linked if Path(path).name.startswith("libc.so"))
    sources = {
        PROBE: programs.probe,
        str(libc.with_name("libcuda.so.1")): programs.driver / "libcuda.so.1",
        **{path: Path(path) for path in linked},
    }
    files = [
        {"hostPath": str(source), "containerPath": path, "options": ["ro", "rbind"]} for path, source in sources.items()
    ]
    shared = {"hostPath": str(counts), "containerPath": "/stub/counts", "options": ["rw", "rbind"]}
    return {
        "mounts": [*files, shared],
        "env": [f"STUB_CARDS={card}:{CARD_MIB}", "STUB_STATE=/stub/counts"],
    }


@contextmanager
def node(layout: Layout, settings: AgentSettings) -> Iterator[None]:
    """The real node with the agent's plugin, which offers what the plugin brings."""
    with (
        offered(layout, Isolation.HAMI_CORE, Isolation.MPS),
        delivery(layout, agents_plugin.REGISTERED),
        agents_plugin.running(layout, settings),
    ):
        yield


def limited(layout: Layout, isolation: Isolation, name: str = "limited") -> dict[str, Any]:
    """Return a pod that may use 3000 MiB of the node's first card."""
    made = pod(name, node=layout.node_name, gpu=1, gpumem=3000, gpucores=30)
    card = fleet.card(layout.node_name, 0)
    made["metadata"]["annotations"] = {ISOLATION: isolation.value, "nvidia.com/use-gpuuuid": card}
    return made


class Driver:
    """The driver's limits as the agent sets them, for the stub of its library: it knows a control group by a name.

    Attributes:
        starts: the pod whose container starts now; the agent names its control group.
        cgroups: the control groups that were limited.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._counts = Path(settings.mps_pipe_directory).with_name("counts")
        self.starts = ""
        self.cgroups: set[Path] = set()

    def apply(self, cgroup: str, limits: Mapping[str, Limit]) -> None:
        """Limit the container that starts."""
        self.cgroups.add(Path(cgroup).relative_to(cgroups.MOUNT))
        (limit,) = limits.values()
        (self._counts / f"limit.{self.starts}").write_text(str(limit.limit))

    def is_rid_of_all(self) -> bool:
        """Whether no control group is left, with which its limit ends."""
        roots = [cgroups.MOUNT, *cgroups.MOUNT.iterdir()]
        return not any((root / cgroup).exists() for root in roots for cgroup in self.cgroups)


@pytest.fixture
def daemon(settings: AgentSettings) -> Iterator[None]:
    """A control daemon of MPS, at the pipes of the node."""
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(f"{settings.mps_pipe_directory}/control")
        control.listen()
        yield


def until_it_ends(made: dict[str, Any], mib: int) -> dict[str, Any]:
    """Return the pod with this much memory; its container ends when a file exists, and the stub has a name for it."""
    (container,) = made["spec"]["containers"]
    container["command"] = ["sh", "-c", "while [ ! -e /end ]; do sleep 0.1; done"]
    container["env"] = [{"name": "STUB_CGROUP", "value": made["metadata"]["name"]}]
    container["resources"]["limits"]["nvidia.com/gpumem"] = mib
    return made


@pytest.mark.parametrize("isolation", [Isolation.HAMI_CORE, Isolation.MPS, Isolation.CUDA])
def test_two_containers_of_a_card_keep_to_their_limits_to_their_end(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings, daemon: None, isolation: Isolation
) -> None:
    """Each is refused what is more than its own, also after a restart; nothing of them stays on the node."""
    driver = Driver(settings)
    limits = MemoryLimits(driver.apply) if isolation is Isolation.CUDA else None
    chosen = msgspec.structs.replace(settings, memory_limits="agent") if limits is not None else settings
    folder = Path(settings.mps_pipe_directory).parent
    with (
        offered(tranche_node, isolation),
        delivery(tranche_node, agents_plugin.REGISTERED),
        agents_plugin.running(tranche_node, chosen, limits),
    ):
        for name, mib in (("first", 3000), ("second", 5000)):
            driver.starts = name
            running(namespace, until_it_ends(limited(tranche_node, isolation, name), mib))
        assert [allocated(namespace, name=name) for name in ("first", "second")] == ["3000", "5000"]
        driver.starts = "first"
        namespace.kubectl("exec", "first", "--", "touch", "/end")
        wait.until(lambda: has_restarted(namespace, "first"), what="a restarted container", timeout_s=PATIENCE_S)
        assert [allocated(namespace, name=name) for name in ("first", "second")] == ["3000", "5000"]
        namespace.delete("pods", "first", "second", grace_s=1)
        wait.until(driver.is_rid_of_all, what="the end of the control groups", timeout_s=PATIENCE_S)
    kept = {"ld.so.preload", "empty"} if isolation is Isolation.HAMI_CORE else set()
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert left - {"lock", "limit.first", "limit.second"} == kept, "apart from files of the stubs"


def has_restarted(namespace: Namespace, name: str) -> bool:
    """Whether another container of the pod runs."""
    (status,) = namespace.pod(name)["status"]["containerStatuses"]
    return bool(status["restartCount"] and status["ready"])


def with_variables(namespace: Namespace, made: dict[str, Any], **variables: str) -> dict[str, Any]:
    """Return the pod with variables that admission does not see."""
    metadata = {"name": "own", "namespace": namespace.name}
    namespace.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": variables})
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "own"}}]
    return made


def allocated(namespace: Namespace, *command: str, name: str = "limited") -> str:
    """Run the program that allocates until it is refused in a container; return the MiB that it got."""
    return namespace.kubectl("exec", name, "--", *command, PROBE, "500").partition(":")[0]


def mounts(namespace: Namespace, name: str = "limited") -> dict[str, set[str]]:
    """Return the options of what a container has mounted."""
    lines = namespace.kubectl("exec", name, "--", "cat", "/proc/mounts").splitlines()
    return {fields[1]: set(fields[3].split(",")) for fields in map(str.split, lines)}


def test_hami_core_limits_a_container_without_a_host_path(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings
) -> None:
    """Whatever the user sets: the plugin loads it into each process, and empties what would weaken it."""
    made = with_variables(
        namespace,
        limited(tranche_node, Isolation.HAMI_CORE),
        CUDA_DISABLE_CONTROL="true",
        CUDA_DEVICE_SM_LIMIT_0="100",
        CUDA_DEVICE_MEMORY_SHARED_CACHE="/own",
    )
    with node(tranche_node, settings):
        bound = running(namespace, made)
        assert [each for each in bound["spec"].get("volumes", []) if "hostPath" in each] == []
        assert allocated(namespace) == "3000"
        assert allocated(namespace, "env", "-u", "LD_PRELOAD") == "3000"
        variables = exec_environment(namespace, "limited")
        assert variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == f"{COUNTS}/cudevshr.cache"
        assert (variables["CUDA_DISABLE_CONTROL"], variables["CUDA_DEVICE_SM_LIMIT_0"]) == ("", "")
        found = mounts(namespace)
        assert all("ro" in found[path] for path in (LIBRARY, PRELOAD, "/overrideEnv"))
        assert "rw" in found[COUNTS]
    assert sorted(each.name for each in Path(settings.nri_files).iterdir()) == ["empty", "ld.so.preload"]


def test_a_mount_over_the_library_starts_no_container(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings
) -> None:
    """A pod that hides it would have no limit; the error says which mount to remove."""
    made = limited(tranche_node, Isolation.HAMI_CORE)
    made["spec"]["volumes"] = [{"name": "own", "emptyDir": {}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "own", "mountPath": PRELOAD}]
    with node(tranche_node, settings):
        namespace.create(made)
        assert f"its mount {PRELOAD} is where isolation hami-core has {PRELOAD}" in failure(namespace, "limited")


def test_mps_limits_a_container_by_the_daemon_of_its_node(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings
) -> None:
    """It waits for a daemon, without which its programs would have no limit; it has the daemon's pipes and memory."""
    made = with_variables(namespace, limited(tranche_node, Isolation.MPS), CUDA_MPS_PIPE_DIRECTORY="/own")
    control = f"{settings.mps_pipe_directory}/control"
    with node(tranche_node, settings), socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(control)
        namespace.create(made)
        assert f"isolation mps: {control}: no MPS control daemon listens" in failure(namespace, "limited")
        daemon.listen()
        namespace.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/limited")
        assert allocated(namespace) == "3000"
        assert exec_environment(namespace, "limited")["CUDA_MPS_PIPE_DIRECTORY"] == PIPES
        assert allocated(namespace, "env", "-u", "CUDA_MPS_PIPE_DIRECTORY") == "3000"
        assert "ro" in mounts(namespace)[PIPES]
        namespace.kubectl("exec", "limited", "--", "touch", f"{SHARED_MEMORY}/seen")
    assert [each.name for each in Path(settings.mps_shared_memory).iterdir()] == ["seen"]


def test_the_driver_limits_a_container_before_it_runs(tranche_node: Layout, namespace: Namespace) -> None:
    """Asked by the agent, for the control group that the runtime has made; a container that it refuses never runs."""
    asked: list[tuple[bool, dict[str, Limit]]] = []

    def apply(cgroup: str, limits: Mapping[str, Limit]) -> None:
        path = Path(cgroup).relative_to(cgroups.MOUNT)
        asked.append((any((root / path).is_dir() for root in (cgroups.MOUNT, cgroups.MOUNT / "memory")), dict(limits)))
        if len(asked) > 1:
            raise NvmlError("nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions")

    card = fleet.card(tranche_node.node_name, 0)
    nvidia_software.write_specs(tranche_node.cdi_specs, [card])
    with (
        offered(tranche_node, Isolation.CUDA),
        delivery(tranche_node, agents_plugin.REGISTERED),
        agents_plugin.running(tranche_node, AgentSettings(memory_limits="agent"), MemoryLimits(apply)),
    ):
        running(namespace, limited(tranche_node, Isolation.CUDA))
        assert asked == [(True, {card: Limit(3000, 3000)})]
        namespace.create(limited(tranche_node, Isolation.CUDA, "refused"))
        reason = "container main: the driver does not set the memory limit: nvmlDeviceSetMemoryLimits_v1"
        assert reason in failure(namespace, "refused")
