"""A cluster of the lab in which Tranche's processes are pods behind Services, as in any cluster."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import helm_binary, helm_installation, kubectl
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout
from tests.install import older_image
from tests.support import image, labs
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S

ROOT = Path(__file__).parents[2]
CARDS = helm_installation.CARDS
CARD_MIB = helm_installation.CARD_MIB
SYSTEM = "tranche-system"
# Written by controllers all the time.
VOLATILE = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "pods.metrics.k8s.io")


@pytest.fixture(scope="session")
def installable(node_support: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """The cluster of `make install-lab` before Tranche is installed, with the image of an older version as well.

    A module that installs it removes it.
    """
    image.require_tools()
    with labs.reserved("installable", tmp_path_factory) as layout:
        helm_installation.start(layout, image.built(tmp_path_factory))
        older_image.provide(layout)
        yield layout


@pytest.fixture(scope="module")
def helm(installable: Layout) -> Callable[..., str]:
    """`helm(*arguments)`: all output, because logs of hooks are on standard error; a failure fails the test."""
    program = helm_binary.provide()

    def run(*arguments: str) -> str:
        command = [program, f"--kubeconfig={installable.kubeconfig}", f"--namespace={SYSTEM}", *arguments]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{kubectl.run(installable, 'get', 'pods', '-A', '-o', 'wide')}"
        return done.stdout

    return run


def inventory(layout: Layout) -> set[str]:
    """Return kind, namespace and name of every object of the cluster."""
    kinds = kubectl.run(layout, "api-resources", "--verbs=list", "-o", "name").split()
    listed = ",".join(kind for kind in kinds if kind not in VOLATILE)
    template = "{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{'\\n'}{end}"
    return set(kubectl.run(layout, "get", listed, "-A", "-o", f"jsonpath={template}").splitlines())


def ready(layout: Layout) -> None:
    """Wait until every process runs in its last version, and the node's cards are known."""
    processes_ready(layout)
    reported(layout, lambda cards: len(cards) == len(CARDS), what="cards of the node")


def processes_ready(layout: Layout) -> None:
    """Wait until every process runs in its last version."""
    for workload in ("deployment/tranche-webhook", "deployment/tranche-scheduler", "daemonset/tranche-agent"):
        _patiently(layout, "-n", SYSTEM, "rollout", "status", workload, KUBECTL_PATIENCE)


def cards(layout: Layout) -> list[dict[str, Any]]:
    """Return the cards that the agent reports."""
    found = client(layout).find("gpunodestatus", layout.node_name) or {}
    return found.get("status", {}).get("devices", [])


def reported(layout: Layout, probe: Callable[[list[dict[str, Any]]], bool], *, what: str) -> None:
    """Wait until `probe` is true of the cards that the agent reports."""

    def is_true(statuses: Mapping[str, Any]) -> bool:
        return probe(statuses.get(layout.node_name, {}).get("status", {}).get("devices", []))

    client(layout).until(is_true, "gpunodestatuses", what=what, timeout_s=PATIENCE_S)


def _patiently(layout: Layout, *arguments: str) -> None:
    """Run a kubectl command that waits, again until the deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            kubectl.run(layout, *arguments)
        except Exception:
            if time.monotonic() >= deadline:
                raise
        else:
            return


_PAUSE_S = 0.1
"""Between two admissions: the processes under test need the processors themselves."""


class Admissions:
    """Creates GPU pods in dry runs, one after the other, while a block runs.

    Attributes:
        admitted: how many the webhook prepared.
        failed: what happened to the others.
    """

    def __init__(self, layout: Layout, namespace: str) -> None:
        self.admitted = 0
        self.failed: list[str] = []
        self._layout = layout
        self._namespace = namespace
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Admissions]:
        """Create pods until the block ends."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(30)

    def _run(self) -> None:
        api = client(self._layout)
        while not self._ended.wait(_PAUSE_S):
            try:
                (created,) = api.create(gpu_pod("load"), namespace=self._namespace, dry_run=True)
            except LabError as error:
                self.failed.append(str(error))
            else:
                if created["spec"]["schedulerName"] == "tranche":
                    self.admitted += 1
                else:
                    self.failed.append("not prepared by the webhook")


def gpu_pod(name: str, *, memory_mib: int = 3000) -> dict[str, Any]:
    """Return a pod that requests a slice of a card."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "30"}
    container = {
        "name": "main",
        "image": "tranche.local/busybox:lab",
        "command": ["sleep", "3600"],
        "resources": {"limits": limits},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
