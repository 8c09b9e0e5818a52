"""Pods as admission prepares them, without any process of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocation.names import FENCED_LABEL, ISOLATION
from benchmarks import cluster
from lab.client import client
from tests.support import identities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout

IMAGE = "registry.k8s.io/pause:3.10"
NODE = "policies-node"


def prepared(*, containers: int = 1, gpu_containers: int = 1, isolation: str = "") -> dict[str, Any]:
    """Return a GPU pod as the webhook prepares it; a gate keeps it from every scheduler."""
    annotations = {ISOLATION: isolation} if isolation else {}
    asking = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}
    spec = {
        "schedulingGates": [{"name": "tests/policies"}],
        "containers": [
            {"name": f"c{number}", "image": IMAGE, "resources": {"limits": asking} if number < gpu_containers else {}}
            for number in range(containers)
        ],
    }
    return cluster.prepared(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}, "spec": spec}
    )


def plain(name: str, *, scheduler: str = "nobody", **metadata: Any) -> dict[str, Any]:
    """Return a pod without a GPU request, which no scheduler takes."""
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": IMAGE}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def binding(name: str, annotations: Mapping[str, str], *, fenced: bool = True) -> dict[str, Any]:
    """Return a Binding of a pod, with or without the label that the fence selects."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": name,
            "labels": {FENCED_LABEL: "true"} if fenced else {},
            "annotations": dict(annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    }


def remove_all(layout: Layout, namespace: str) -> None:
    """Delete the pods of a namespace at once: those with a node as its kubelet does."""
    for each in client(layout).list("pods", namespace=namespace):
        node = each["spec"].get("nodeName")
        api = identities.kubelet(layout, node) if node else client(layout)
        api.delete("pods", each["metadata"]["name"], namespace=namespace, grace_s=0, missing_ok=True, wait=False)
