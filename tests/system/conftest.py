"""The whole product on a real control plane: all four processes with their own identities, as `make up` starts them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import cluster, components, kubectl, wait
from lab import real_node as real_node_module
from lab.files import write_private
from lab.layout import PORT_BLOCK, Layout
from lab.processes import Daemon
from tests.conftest import BASE_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 60.0
LAST = ("test_rbac.py", "test_secrets.py")  # they look back at the whole run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that look back at the whole run be the last ones; the others stay in their order."""
    items.sort(key=lambda item: item.path.parent == Path(__file__).parent and item.path.name in LAST)


@pytest.fixture(scope="session")
def tranche(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A lab as a user has it, with a real node where the machine can run one."""
    layout = Layout(root=tmp_path_factory.mktemp("tranche"), base_port=BASE_PORT + 2 * PORT_BLOCK)
    try:
        cluster.up(layout, with_real_node=not real_node_module.unsupported())
        yield layout
    finally:
        cluster.down(layout)


@pytest.fixture
def tranche_node(node_support: None, tranche: Layout) -> Layout:
    """The same, where the real node is a must."""
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
    """A further simulated node: a card divided by an administrator, one that the agent divides, one that is shared."""
    component = components.Component(
        "simulated-mig-node", (components.LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", MIG_NODE)
    )
    fleet_file = tranche.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    components.start(tranche, component)
    wait.until(
        lambda: kubectl.run(tranche, "get", "node", MIG_NODE, "--ignore-not-found"), what="node", timeout_s=PATIENCE_S
    )
    write_private(fleet_file, before + MIG_FLEET)
    wait.until(lambda: mig_status(tranche).get("total") == 4, what="its cards", timeout_s=PATIENCE_S)
    yield MIG_NODE
    write_private(fleet_file, before)
    Daemon(tranche, component.name).stop()
    kubectl.run(tranche, "delete", "node", MIG_NODE)
    kubectl.run(tranche, "delete", "gpunodestatus", MIG_NODE)


def mig_status(layout: Layout) -> dict[str, Any]:
    """Answer what the agent says of the MIG node, nothing where it has not said."""
    found = kubectl.run(layout, "get", "gpunodestatus", MIG_NODE, "--ignore-not-found", "-o", "json")
    status: dict[str, Any] = json.loads(found).get("status", {}) if found else {}
    return status


class Namespace:
    """A namespace of a test, and what people do in it."""

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return kubectl.run(self.layout, "-n", self.name, *arguments, stdin=stdin)

    def create(self, *manifests: dict[str, Any]) -> None:
        """Create objects, all in one request of kubectl's."""
        self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def pods(self, *selector: str) -> list[dict[str, Any]]:
        """Answer the pods as the API server has them."""
        found: list[dict[str, Any]] = kubectl.get(self.layout, "-n", self.name, "pods", *selector)["items"]
        return found

    def pod(self, name: str) -> dict[str, Any]:
        """Answer one pod."""
        found: dict[str, Any] = kubectl.get(self.layout, "-n", self.name, "pod", name)
        return found

    def empty(self) -> None:
        """Delete what was made, and wait until it is gone."""
        self.kubectl("delete", "deployments", "--all", "--cascade=foreground", "--timeout=50s")
        self.kubectl("delete", "pods", "--all", "--timeout=50s")

    def placed(self, count: int, *selector: str) -> list[dict[str, Any]]:
        """Wait until exactly `count` pods have a node and answer them."""

        def enough() -> list[dict[str, Any]] | None:
            placed = [pod for pod in self.pods(*selector) if pod["spec"].get("nodeName")]
            return placed if len(placed) == count else None

        return wait.until(enough, what=f"{count} placed pods in {self.name}", timeout_s=PATIENCE_S)

    def unplaced(self, name: str) -> str:
        """Wait until a pod's condition says why it has no node, and answer that."""

        def message() -> str | None:
            conditions = self.pod(name)["status"].get("conditions", [])
            return next(
                (each["message"] for each in conditions if each.get("reason") == "Unschedulable"),
                None,
            )

        return wait.until(message, what=f"the reason why {self.name}/{name} waits", timeout_s=PATIENCE_S)


@pytest.fixture(scope="session")
def make_namespace(tranche: Layout) -> Callable[..., Namespace]:
    """Make namespaces, opted in or not."""
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
    """An opted-in namespace; its pods are gone before the next test begins."""
    made = make_namespace()
    yield made
    made.empty()


@pytest.fixture
def plain_namespace(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace that nobody opted in."""
    made = make_namespace(opted_in=False)
    yield made
    made.empty()


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **limits: int | str) -> dict[str, Any]:
    """Answer the manifest of a pod with one container; limits by short names: gpu, gpumem, gpucores, percentage."""
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
