"""The whole product on a real control plane: every process with its own identity, as `make up` starts them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import cluster, kubectl, wait
from lab import real_node as real_node_module
from lab.errors import LabError
from lab.files import write_private
from lab.layout import PORT_BLOCK, Layout
from tests.conftest import BASE_PORT
from tests.system.support import simulated_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 60.0
LAST = ("test_rbac.py", "test_secrets.py")  # they check the audit log of the whole run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that check the whole run last; the others keep their order."""
    items.sort(key=lambda item: item.path.parent == Path(__file__).parent and item.path.name in LAST)


@pytest.fixture(scope="session")
def tranche(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A lab as a user starts it, with a real node if the machine can run one."""
    layout = Layout(root=tmp_path_factory.mktemp("tranche"), base_port=BASE_PORT + 2 * PORT_BLOCK)
    try:
        cluster.up(layout, with_real_node=not real_node_module.unsupported())
        yield layout
    finally:
        cluster.down(layout)


@pytest.fixture
def tranche_node(node_support: None, tranche: Layout) -> Layout:
    """The lab with a real node; skip the test without one."""
    return tranche


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
    text = kubectl.run(layout, "get", "gpunodestatus", MIG_NODE, "--ignore-not-found", "-o", "json")
    status: dict[str, Any] = json.loads(text).get("status", {}) if text else {}
    return status


def as_node(node: str) -> tuple[str, ...]:
    """Return arguments by which kubectl impersonates the kubelet of a node."""
    return (f"--as=system:node:{node}", "--as-group=system:nodes")


class Namespace:
    """The namespace of a test, and operations in it."""

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return kubectl.run(self.layout, "-n", self.name, *arguments, stdin=stdin)

    def create(self, *manifests: dict[str, Any]) -> None:
        """Create objects with one call of kubectl."""
        self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def pods(self, *selector: str) -> list[dict[str, Any]]:
        """Return the pods as the API server shows them."""
        items: list[dict[str, Any]] = kubectl.get(self.layout, "-n", self.name, "pods", *selector)["items"]
        return items

    def pod(self, name: str) -> dict[str, Any]:
        """Return one pod."""
        content: dict[str, Any] = kubectl.get(self.layout, "-n", self.name, "pod", name)
        return content

    def empty(self) -> None:
        """Delete Deployments and pods, and wait until they are gone."""
        self.kubectl("delete", "deployments", "--all", "--cascade=foreground", "--timeout=50s")
        wait.until(self._without_pods, what=f"the end of the pods in {self.name}", timeout_s=PATIENCE_S)

    def _without_pods(self) -> bool:
        """Delete the pods. A policy refuses to delete a pod at once that got its node at this moment."""
        try:
            self.kubectl("delete", "pods", "--all", "--timeout=50s")
        except LabError as error:
            if "would be gone before its containers have ended" not in str(error):
                raise
            return False
        return True

    def set_phase(self, name: str, phase: str, *identity: str) -> None:
        """Write a pod's phase. `kubectl patch` would read the subresource first, which kubelets may not."""
        changed = self.pod(name)
        changed["status"]["phase"] = phase
        path = f"/api/v1/namespaces/{self.name}/pods/{name}/status"
        self.kubectl("replace", "--raw", path, "-f", "-", *identity, stdin=json.dumps(changed))

    def remove(self, name: str) -> None:
        """Delete a pod immediately, as the kubelet of its node does when its containers have ended."""
        path = f"/api/v1/namespaces/{self.name}/pods/{name}?gracePeriodSeconds=0"
        self.kubectl("delete", "--raw", path, *as_node(self.pod(name)["spec"]["nodeName"]))

    def placed(self, count: int, *selector: str) -> list[dict[str, Any]]:
        """Wait until exactly `count` pods have a node, and return them."""

        def enough() -> list[dict[str, Any]] | None:
            placed = [pod for pod in self.pods(*selector) if pod["spec"].get("nodeName")]
            return placed if len(placed) == count else None

        return wait.until(enough, what=f"{count} placed pods in {self.name}", timeout_s=PATIENCE_S)

    def unplaced(self, name: str) -> str:
        """Wait until a pod's condition has the reason why it has no node, and return it."""

        def message() -> str | None:
            conditions = self.pod(name)["status"].get("conditions", [])
            return next(
                (each["message"] for each in conditions if each.get("reason") == "Unschedulable"),
                None,
            )

        return wait.until(message, what=f"the reason why {self.name}/{name} waits", timeout_s=PATIENCE_S)


@pytest.fixture(scope="session")
def make_namespace(tranche: Layout) -> Callable[..., Namespace]:
    """A function that creates namespaces, opted in or not."""
    serial = itertools.count()

    def make(*, opted_in: bool = True) -> Namespace:
        name = f"test-{next(serial)}"
        labels = {"gpu.scheduling/injection": "enabled"} if opted_in else {}
        kubectl.apply(tranche, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        wait.until(
            lambda: kubectl.run(tranche, "-n", name, "get", "serviceaccount", "default", "--ignore-not-found"),
            what=f"ServiceAccount default in {name}",
            timeout_s=PATIENCE_S,
        )
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
    """Return the manifest of a pod with one container; limits by short names: gpu, gpumem, gpucores, percentage."""
    names = {
        "gpu": "nvidia.com/gpu",
        "gpumem": "nvidia.com/gpumem",
        "gpucores": "nvidia.com/gpucores",
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
