"""A control plane with one node of two cards, pods in each state, and `kubectl gpu` as a real process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allocation import environment
from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from cluster.gpu_node_status import status_of
from lab import kubectl, wait
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout

ROOT = Path(__file__).parents[2]
TEAM = "cli-team"
NODE = "cli-1"
SHARES = (CardShare("GPU-cli-1-0", 0, 3000, 300),)
INVENTORY = NodeInventory(
    NODE, tuple(Card(uuid=f"GPU-{NODE}-{index}", index=index, memory_mib=40960, healthy=index == 0) for index in (0, 1))
)

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


def _pod(name: str, *, managed: bool = True, placed: bool = False) -> dict[str, Any]:
    """Answer a pod as admission leaves it, and where `placed` as a Binding leaves it."""
    container: dict[str, Any] = {"name": "main", "image": "none"}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [container]},
    }
    if managed:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}}
        container["env"] = [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
            for variable, key in environment.references("main", 1).items()
        ]
    if placed:
        pod["metadata"]["annotations"] = environment.annotations(Allocation(NODE, {"main": SHARES}))
        pod["spec"]["nodeName"] = NODE
    return pod


@pytest.fixture(scope="session")
def team(control_plane: Layout) -> Layout:
    """The control plane with namespace cli-team: pods `placed`, `waiting`, `plain`; accounts `viewer`, `stranger`."""
    base = ROOT / "manifests" / "base"
    kubectl.run(control_plane, "apply", "-f", str(base / "crds" / "gpunodestatuses.yaml"))
    kubectl.run(control_plane, "apply", "-f", str(base / "rbac" / "viewer.yaml"))
    kubectl.run(control_plane, "wait", "--for=condition=Established", "crd/gpunodestatuses.gpu.scheduling")
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": NODE}}
    kubectl.apply(
        control_plane,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        {**head, "spec": {"nodeName": NODE}},
    )
    status = json.dumps({"status": msgspec.to_builtins(status_of(INVENTORY))})
    kubectl.run(control_plane, "patch", "gns", NODE, "--subresource=status", "--type=merge", "-p", status)
    for account in ("default", "viewer", "stranger"):
        metadata = {"name": account, "namespace": TEAM}
        kubectl.apply(control_plane, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    pods = [_pod("placed", placed=True), _pod("waiting"), _pod("plain", managed=False)]
    # Where the suite has installed the policies, only who is trusted with allocations may bring one.
    trusted = ("--as", "system:serviceaccount:tranche-system:tranche-static", "--as-group", "system:masters")
    kubectl.run(
        *(control_plane, "create", "-f", "-", *trusted),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}),
    )
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "cli-viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": TEAM}],
    }
    kubectl.apply(control_plane, binding)
    wait.until(
        lambda: "gpunodestatuses" in kubectl.run(control_plane, "get", "clusterrole", "view", "-o", "yaml"),
        what="tranche-viewer aggregated to view",
        timeout_s=30,
    )
    return control_plane


@pytest.fixture
def gpu(team: Layout) -> Gpu:
    """Run `kubectl gpu` as an account of the team, in a context whose namespace is the team's."""

    def run(*arguments: str, account: str = "viewer") -> "subprocess.CompletedProcess[str]":
        kubeconfig = service_account_kubeconfig(team, namespace=TEAM, name=account)
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments, "--kubeconfig", str(kubeconfig)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
