"""Hardware from the NVML stub, a control plane with the CRDs, and agents as real processes."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.nvml.visible_devices import VARIABLE
from lab import kubectl, wait
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.nvml.stub import STATE, Hardware, build
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class AgentProcess:
    """A running agent with the permissions of its manifest."""

    def __init__(self, *arguments: str, log: Path, kubeconfig: Path, environment: dict[str, str]) -> None:
        self._log = log
        command = [sys.executable, "-m", "agent", "--kubeconfig", str(kubeconfig)]
        command += ["--publish-seconds", "0.1", "--heartbeat-lease-seconds", "1", "--identity", "agent-under-test"]
        command += ["--metrics-address", "127.0.0.1", "--metrics-port", "0", *arguments]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    @property
    def log(self) -> str:
        """The log so far."""
        return self._log.read_text()

    def http(self, path: str) -> tuple[int, str]:
        """Return status and body of a page of the agent's HTTP server."""
        port = wait.until(
            lambda: re.search(r"serving health and metrics on port (\d+)", self.log), what="port", timeout_s=PATIENCE_S
        )[1]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def cluster(control_plane: Layout) -> Layout:
    """The control plane with the CRD, the namespace and the agent's permissions."""
    return with_agents(control_plane)


def with_agents(control_plane: Layout) -> Layout:
    """Install what agents need, and return the control plane.

    An agent here serves many nodes, so it has the identity of a lab's agent, which is not restricted to one node.
    """
    base = ROOT / "manifests" / "base"
    kubectl.run(control_plane, "apply", "-f", str(base / "namespace.yaml"))
    kubectl.run(control_plane, "apply", "-f", str(base / "crds" / "gpunodestatuses.yaml"))
    kubectl.run(control_plane, "apply", "-f", str(base / "rbac" / "agent.yaml"))
    for file in ("namespace.yaml", "fleet-agent.yaml"):
        kubectl.run(control_plane, "apply", "-f", str(ROOT / "manifests" / "lab" / file))
    kubectl.run(control_plane, "wait", "--for=condition=Established", "crd/gpunodestatuses.gpu.scheduling")
    return control_plane


@pytest.fixture
def add_node(cluster: Layout) -> Callable[[str], None]:
    """Return a function that creates a Node without a kubelet."""

    def add(name: str) -> None:
        node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        client(cluster).apply(node)

    return add


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub, compiled."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def hardware(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    """The stub's hardware for this process and those that it starts; it has no cards at first."""
    hardware = Hardware(tmp_path / "hardware")
    monkeypatch.setenv(STATE, str(hardware.path))
    ctypes.CDLL(str(nvml_library))
    hardware.write()
    return hardware


@pytest.fixture
def run_agent(cluster: Layout, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Return a function that starts an agent with the given arguments and environment; all end with the test."""
    started: list[AgentProcess] = []

    def run(*arguments: str, **environment: str) -> AgentProcess:
        inherited = {key: value for key, value in os.environ.items() if key not in ("NODE_NAME", VARIABLE)}
        agent = AgentProcess(
            *arguments,
            log=tmp_path / f"agent-{len(started)}.log",
            kubeconfig=service_account_kubeconfig(cluster, namespace="tranche-lab", name="fleet-agent"),
            environment=inherited | environment,
        )
        started.append(agent)
        return agent

    yield run
    for agent in started:
        agent.process.kill()
        agent.process.wait(PATIENCE_S)


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """The fleet file of the test's agent."""
    return tmp_path / "fleet.yaml"


@pytest.fixture
def start_agent(run_agent: Callable[..., AgentProcess], fleet_file: Path) -> Callable[[str], AgentProcess]:
    """Return a function that starts an agent with a fleet file of the given content."""

    def start(fleet: str) -> AgentProcess:
        fleet_file.write_text(fleet)
        return run_agent("--fleet-file", str(fleet_file))

    return start
