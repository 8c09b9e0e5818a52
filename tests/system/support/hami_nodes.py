"""Nodes that HAMi's plugin serves: simulated kubelets, the simulated plugin, and the component manifests/hami-nodes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from lab import kubeconfig, manifests
from lab.client import client
from lab.components import LAB_NAMESPACE
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

NODES = ("hami-0", "hami-1", "hami-2")
PLUGIN = "hami-device-plugin"
LOCK = "hami.io/mutex.lock"
_RULES = [
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
]
_IDENTITY: tuple[dict[str, Any], ...] = (
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PLUGIN, "namespace": "kube-system"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": PLUGIN},
        "rules": _RULES,
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": PLUGIN},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PLUGIN},
        "subjects": [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": "kube-system"}],
    },
)


def component(layout: Layout, folder: Path) -> list[dict[str, Any]]:
    """Return the objects that manifests/hami-nodes adds to manifests/base or changes; built in `folder`."""
    above = os.path.relpath(manifests.ROOT, folder)
    content = {"resources": [f"{above}/base"], "components": [f"{above}/hami-nodes"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    base = manifests.build(layout, manifests.ROOT / "base")
    return [each for each in manifests.build(layout, folder) if each not in base]


@contextmanager
def hami_nodes(layout: Layout, folder: Path) -> Iterator[Daemon]:
    """Run the nodes and yield the plugin; restore the previous state afterwards."""
    base = manifests.build(layout, manifests.ROOT / "base")
    names = {(each["kind"], each["metadata"]["name"]) for each in base}
    added = component(layout, folder)
    client(layout).apply(*added)
    try:
        with served_nodes(layout) as plugin:
            yield plugin
    finally:
        client(layout).apply(*(each for each in base if each["kind"] == "ValidatingAdmissionPolicy"))
        delete(layout, *(each for each in added if (each["kind"], each["metadata"]["name"]) not in names))


@contextmanager
def served_nodes(layout: Layout) -> Iterator[Daemon]:
    """Run the nodes and the plugin with its identity, whether or not this project is installed."""
    client(layout).apply(*_IDENTITY)
    kubelets = Daemon(layout, "hami-kubelets")
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=LAB_NAMESPACE, name="simulated-nodes")
    kubelets.start([sys.executable, "-m", "lab.simulated", "--kubeconfig", str(identity), *NODES])
    try:
        api = client(layout)
        api.until(lambda nodes: set(NODES) <= nodes.keys(), "nodes", what="simulated nodes")
        start_plugin(layout)
        api.until(lambda nodes: all(_is_served(nodes[name]) for name in NODES), "nodes", what="registered nodes")
        yield Daemon(layout, PLUGIN)
    finally:
        Daemon(layout, PLUGIN).stop()
        kubelets.stop()
        for node in NODES:
            client(layout).delete("node", node, missing_ok=True)
        delete(layout, *_IDENTITY)


def delete(layout: Layout, *manifests: dict[str, Any]) -> None:
    """Delete those of the objects that exist."""
    for each in manifests:
        kind, metadata = each["kind"], each["metadata"]
        client(layout).delete(kind, metadata["name"], namespace=metadata.get("namespace", ""), missing_ok=True)


def start_plugin(layout: Layout) -> None:
    """Start the simulated plugin unless it runs."""
    identity = kubeconfig.service_account_kubeconfig(layout, namespace="kube-system", name=PLUGIN)
    Daemon(layout, PLUGIN).start(
        [sys.executable, "-m", "tests.system.support.hami_plugin", "--kubeconfig", str(identity), *NODES]
    )


def locks(layout: Layout) -> dict[str, str]:
    """Return the locked nodes of any kind, with the value of their lock."""
    nodes = client(layout).list("nodes")
    return {
        each["metadata"]["name"]: each["metadata"]["annotations"][LOCK]
        for each in nodes
        if LOCK in each["metadata"].get("annotations", {})
    }


def _is_served(node: dict[str, Any]) -> bool:
    annotations, allocatable = node["metadata"].get("annotations", {}), node["status"].get("allocatable", {})
    return "hami.io/node-nvidia-register" in annotations and "nvidia.com/gpu" in allocatable
