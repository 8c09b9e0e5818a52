"""A container is held to its limit by what the agent's plugin mounts into it: a real kubelet and containerd 2.

The driver, HAMi-core and the program that allocates until it is refused are stubs (`tests.cuda.programs`), which the
container runtime mounts as it mounts the real ones.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.nri.enforcement import COUNTS, LIBRARY, PIPES, PRELOAD, SHARED_MEMORY
from agent.nri.memory_limits import MemoryLimits
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from agent.settings import AgentSettings
from allocation.isolation import Isolation
from lab import cgroups, fleet
from tests.support.patience import KUBECTL_PATIENCE
from tests.system.conftest import Namespace
from tests.system.support import agents_plugin, nvidia_software
from tests.system.support.stubbed_node import allocated, limited, stubbed
from tests.system.test_delivery import delivery, failure, running
from tests.system.test_isolation import offered
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]


@pytest.fixture
def settings(tranche_node: Layout, tmp_path: Path) -> Iterator[AgentSettings]:
    """Those of the agent of the real node, which has the stubs."""
    with stubbed(tranche_node, tmp_path) as made:
        yield made


@contextmanager
def node(layout: Layout, settings: AgentSettings) -> Iterator[None]:
    """The real node with the agent's plugin, which offers what the plugin brings."""
    with (
        offered(layout, Isolation.HAMI_CORE, Isolation.MPS),
        delivery(layout, agents_plugin.REGISTERED),
        agents_plugin.running(layout, settings),
    ):
        yield


def with_variables(namespace: Namespace, made: dict[str, Any], **variables: str) -> dict[str, Any]:
    """Return the pod with variables that admission does not see."""
    metadata = {"name": "own", "namespace": namespace.name}
    namespace.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": variables})
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "own"}}]
    return made


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
        namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/limited")
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
