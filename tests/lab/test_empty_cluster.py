"""One control plane serves many modules, each of which finds it as if it were new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import manifests, processes
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout
from lab.processes import Daemon
from tests.install.conftest import inventory
from tests.support import clearing, namespaces

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.apiserver
RBAC = "rbac.authorization.k8s.io"
CONTAINER = {"name": "main", "image": "none"}


def head(api_version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    """Return the first fields of a manifest."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def deployment(namespace: str) -> dict[str, Any]:
    """Return a Deployment, whose controllers create a pod again as long as it exists."""
    labels = {"app": "made"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {**head("apps/v1", "Deployment", "made", namespace=namespace), "spec": spec}


def of_controllers(each: str) -> bool:
    """Return whether a line of the inventory is about an object that a controller adds at some time."""
    return each.split()[1] in ("kube-system", "kube-public")


def test_what_a_module_leaves_is_gone(empty_cluster: Layout) -> None:
    """Policies, definitions, nodes, roles, pods that a finalizer holds, processes and files; Kubernetes' own stay."""
    before = inventory(empty_cluster)
    manifests.install(empty_cluster)
    namespaces.create(empty_cluster, "made", {"gpu.scheduling/injection": "enabled"})
    held = head("v1", "Pod", "held", namespace="default", finalizers=["tests.tranche.local/stays"])
    reader = {"apiGroup": RBAC, "kind": "Role", "name": "extension-apiserver-authentication-reader"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    client(empty_cluster).apply(
        head("v1", "Node", "made"),
        {**held, "spec": {"nodeName": "made", "containers": [CONTAINER]}},
        *(deployment(namespace) for namespace in ("default", "made")),
        {**head("v1", "PersistentVolumeClaim", "made", namespace="made"), "spec": claim},
        {**head("scheduling.k8s.io/v1", "PriorityClass", "made"), "value": 7},
        {**head(f"{RBAC}/v1", "RoleBinding", "made", namespace="kube-system"), "roleRef": reader},
    )
    stays = head("v1", "ConfigMap", "stays", namespace="made", finalizers=["tests.tranche.local/stays"])
    lease = head("coordination.k8s.io/v1", "Lease", "made", namespace="kube-system")
    label = {"gpu.scheduling/injection": "enabled"}
    client(empty_cluster).apply(stays, lease, head("v1", "Namespace", "default", labels=label))
    for name in ("recorded", "lost"):
        Daemon(empty_cluster, name).start(["sleep", "300"])
    (empty_cluster.run / "lost.json").unlink()
    files = [folder / "made" for folder in (empty_cluster.root, empty_cluster.config)]
    for file in files:
        file.touch()
    Daemon(empty_cluster, "kube-controller-manager").stop()

    clearing.clear(empty_cluster)
    assert client(empty_cluster).find("lease", "made", namespace="kube-system") is None
    assert client(empty_cluster).get("namespace", "default")["metadata"]["labels"].keys().isdisjoint(label)
    after = inventory(empty_cluster)
    assert {each for each in after - before if not of_controllers(each)} == set()
    assert before - after == set()
    assert len(processes.strays(empty_cluster)) == len(processes.recorded(empty_cluster)) == 3
    assert not any(file.exists() for file in files)
    # It serves again.
    client(empty_cluster).create({**head("v1", "Pod", "next"), "spec": {"containers": [CONTAINER]}})


def test_a_cluster_that_cannot_be_cleared_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests of the module have passed; the next module gets a new control plane."""
    called = []
    monkeypatch.setattr(clearing.control_plane, "up", lambda *_, **__: called.append("up"))
    monkeypatch.setattr(clearing.cluster, "down", lambda _: called.append("down"))

    def fail(_: Layout) -> None:
        raise LabError("an empty cluster", why="still there: a node", remedy="none")

    monkeypatch.setattr(clearing, "clear", fail)
    with clearing.serving(Layout(root=tmp_path)):
        assert called == ["up"]
    assert called == ["up", "down"]
