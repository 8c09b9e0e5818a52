"""The whole product on a real control plane: every process with its own identity, as `make up` starts them."""

from __future__ import annotations

import itertools
import subprocess
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lab import cluster, components, health, kubectl, wait
from lab import real_node as real_node_module
from lab.client import Client, client
from lab.connection import RefusedError
from lab.files import write_private
from lab.processes import Daemon
from tests.support import identities, labs, namespaces
from tests.support.patience import PATIENCE_S
from tests.system.support import simulated_nodes, whole_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

T = TypeVar("T")


@pytest.fixture(scope="session")
def tranche(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A lab as a user starts it, with a real node if the machine can run one; its logs are checked when it ends."""
    with labs.reserved("tranche", tmp_path_factory) as layout:
        cluster.up(layout, with_real_node=not real_node_module.unsupported())
        yield layout
        whole_run.check(layout)


@pytest.fixture
def tranche_node(node_support: None, tranche: Layout) -> Layout:
    """The lab with a real node; skip the test without one."""
    return tranche


@pytest.fixture(scope="session")
def uts_support() -> None:
    """Skip the test where a pair cannot have a host name of its own; in CI, every such skip is a failure."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a separate host name for each pair needs root")


@pytest.fixture
def dead_webhook(tranche: Layout) -> Iterator[Layout]:
    """The lab without its webhook, which is started again after the test."""
    daemon = Daemon(tranche, "webhook")
    daemon.stop()
    yield tranche
    component = components.component(tranche, "webhook")
    components.start(tranche, component)
    wait.until(lambda: health.probe(component.ready), what="webhook ready", timeout_s=PATIENCE_S, daemons=[daemon])


MIG_NODE = "gpu-mig-0"
MIG_FLEET = """
gpu-mig-0:
  - {index: 0, memoryMiB: 81920, mode: mig, instances: [{profile: 3g.40gb, start: 0}]}
  - {index: 1, memoryMiB: 81920, mode: mig, instancesBy: agent}
  - {index: 2, memoryMiB: 81920}
"""


@pytest.fixture(scope="module")
def mig_node(tranche: Layout) -> Iterator[str]:
    """An additional simulated node: a card partitioned by an administrator, one by the agent, and a shared card."""
    fleet_file = tranche.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    with simulated_nodes.running(tranche, MIG_NODE):
        write_private(fleet_file, before + MIG_FLEET)
        wait.until(lambda: mig_status(tranche).get("total") == 4, what="its cards", timeout_s=PATIENCE_S)
        yield MIG_NODE
        write_private(fleet_file, before)


def mig_status(layout: Layout) -> dict[str, Any]:
    """Return the status of the MIG node's GpuNodeStatus, empty if the agent has not written one."""
    found = client(layout).find("gpunodestatus", MIG_NODE)
    status: dict[str, Any] = found.get("status", {}) if found else {}
    return status


class Namespace:
    """The namespace of a test, and operations in it.

    Attributes:
        layout: its lab.
        name: its name.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name

    @property
    def api(self) -> Client:
        """The lab's API server, for the administrator."""
        return client(self.layout)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace, where kubectl is what is tested."""
        return kubectl.run(self.layout, "-n", self.name, *arguments, stdin=stdin)

    def create(self, *manifests: dict[str, Any]) -> None:
        """Create objects."""
        self.api.create(*manifests, namespace=self.name)

    def delete(self, kind: str, *names: str, grace_s: int | None = None, wait: bool = True) -> None:
        """Delete objects; with `wait`, until they are gone."""
        for name in names:
            self.api.delete(kind, name, namespace=self.name, grace_s=grace_s, wait=False)
        if wait:
            self.until(lambda left: left.keys().isdisjoint(names), kind, what=f"the end of {', '.join(names)}")

    def patch(self, kind: str, name: str, patch: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Change an object by a merge patch; return it."""
        return self.api.patch(kind, name, patch, namespace=self.name, subresource=subresource)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object of the namespace."""
        return self.api.get(kind, name, namespace=self.name)

    def list(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind in the namespace."""
        return self.api.list(kind, namespace=self.name, labels=labels)

    def until(
        self,
        probe: Callable[[Mapping[str, Any]], T | None],
        kind: str = "pods",
        *,
        what: str,
        labels: str = "",
        timeout_s: float = PATIENCE_S,
    ) -> T:
        """Wait until `probe` returns a true value of the objects of a kind, by name, and return this value."""
        what = f"{what} in {self.name}"
        return self.api.until(probe, kind, namespace=self.name, labels=labels, what=what, timeout_s=timeout_s)

    def pods(self, labels: str = "") -> list[dict[str, Any]]:
        """Return the pods that a selector matches, as the API server shows them."""
        return self.list("pods", labels)

    def pod(self, name: str) -> dict[str, Any]:
        """Return one pod."""
        return self.get("pod", name)

    def empty(self) -> None:
        """Delete Deployments and pods, and wait until they are gone.

        Pods are not left to the garbage collector, which would give them their whole grace period.
        """
        for kind in ("deployments", "replicasets"):
            self.api.delete_all(kind, namespace=self.name)
        wait.until(self._without_pods, what=f"the end of the pods in {self.name}", timeout_s=PATIENCE_S)

    def _without_pods(self) -> bool:
        """Delete the pods. A policy refuses to delete a pod at once that got its node at this moment."""
        try:
            self.api.delete_all("pods", namespace=self.name, grace_s=1, timeout_s=PATIENCE_S)
        except RefusedError as error:
            if "would be gone before its containers have ended" not in error.message:
                raise
            return False
        return True

    def set_phase(self, name: str, phase: str, *, node: str = "") -> None:
        """Write a pod's phase, as the kubelet of a node if one is named."""
        api = identities.kubelet(self.layout, node) if node else self.api
        api.patch("pods", name, {"status": {"phase": phase}}, namespace=self.name, subresource="status")

    def remove(self, name: str) -> None:
        """Delete a pod immediately, as the kubelet of its node does when its containers have ended."""
        api = identities.kubelet(self.layout, self.pod(name)["spec"]["nodeName"])
        api.delete("pod", name, namespace=self.name, grace_s=0, wait=False)

    def placed(self, count: int, labels: str = "") -> list[dict[str, Any]]:
        """Wait until exactly `count` pods have a node, and return them."""

        def enough(pods: Mapping[str, Any]) -> list[dict[str, Any]] | None:
            placed = [pod for pod in pods.values() if pod["spec"].get("nodeName")]
            return placed if len(placed) == count else None

        return self.until(enough, what=f"{count} placed pods", labels=labels)

    def ready(self, *names: str) -> None:
        """Wait until these pods are ready."""

        def are_ready(pods: Mapping[str, Any]) -> bool:
            return all(
                ("Ready", "True")
                in ((each["type"], each["status"]) for each in pods[name]["status"].get("conditions", ()))
                for name in names
            )

        self.until(are_ready, what=f"{', '.join(names)} ready")

    def unplaced(self, name: str) -> str:
        """Wait until a pod's condition has the reason why it has no node, and return it."""

        def message(pods: Mapping[str, Any]) -> str | None:
            conditions = pods[name]["status"].get("conditions", [])
            return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), None)

        return self.until(message, what=f"the reason why {name} waits")


@pytest.fixture(scope="session")
def make_namespace(tranche: Layout) -> Callable[..., Namespace]:
    """A function that creates namespaces, opted in or not."""
    serial = itertools.count()

    def make(*, opted_in: bool = True) -> Namespace:
        name = f"test-{next(serial)}"
        labels = {"gpu.scheduling/injection": "enabled"} if opted_in else {}
        namespaces.create(tranche, name, labels)
        return Namespace(tranche, name)

    return make


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """An opted-in namespace; its pods are deleted before the next test begins."""
    made = make_namespace()
    yield made
    made.empty()


@pytest.fixture
def plain_namespace(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace that is not opted in."""
    made = make_namespace(opted_in=False)
    yield made
    made.empty()


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **limits: int | str) -> dict[str, Any]:
    """Return the manifest of a pod with one container; limits by short names, such as gpumem."""
    names = {
        "gpu": "nvidia.com/gpu",
        "gpumem": "nvidia.com/gpumem",
        "gpucores": "nvidia.com/gpucores",
        "gputflops": "nvidia.com/gputflops",
        "percentage": "nvidia.com/gpumem-percentage",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [
                {
                    "name": "main",
                    "image": "tranche.local/busybox:lab",
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "3600"],
                    "resources": {"limits": {names[key]: value for key, value in limits.items()}},
                }
            ],
        },
    }
