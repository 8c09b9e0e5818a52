"""A control plane with nodes, cards and pods in each state, and `kubectl gpu` as a process."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.publishing import publisher
from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.names import HAMI_REGISTER
from allocation.wire import environment, hami
from cluster.gpu_node_status import status_of
from lab import kubectl
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.support import gpu_command

ROOT = Path(__file__).parents[2]
TEAM = "cli-team"
SYSTEM = "tranche-system"
NODE, QUIET, HAMIS = "cli-1", "cli-2", "cli-3"
SHARES = (CardShare("GPU-cli-1-0", 0, 3000, 300),)
INVENTORY = NodeInventory(
    NODE, tuple(Card(uuid=f"GPU-{NODE}-{index}", index=index, memory_mib=40960, healthy=index == 0) for index in (0, 1))
)

REGISTERED = NodeInventory(HAMIS, (Card(uuid=f"GPU-{HAMIS}-0", index=0, memory_mib=8192, model="NVIDIA-T4"),))

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


def _pod(name: str, *, managed: bool = True, placed: bool = False) -> dict[str, Any]:
    """Return a pod after admission or, if `placed`, after its Binding."""
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


def _node(name: str, **annotations: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}


def _report(name: str) -> dict[str, Any]:
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": name}}
    return {**head, "spec": {"nodeName": name}}


def _heartbeat(name: str, *, age: float, seconds: int) -> dict[str, Any]:
    return publisher.heartbeat(name, identity="agent", seconds=seconds, unix=time.time() - age)


def _grant(account: str) -> dict[str, Any]:
    """Return the binding of an account to the ClusterRole of Tranche with the same name."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"cli-{account}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"tranche-{account}"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": TEAM}],
    }


@pytest.fixture(scope="session")
def team(control_plane: Layout) -> Layout:
    """Namespace cli-team with pods `placed`, `waiting`, `plain` and accounts `viewer`, `operator`, `stranger`."""
    base = ROOT / "manifests" / "base"
    kubectl.run(control_plane, "apply", "-f", str(base / "crds" / "gpunodestatuses.yaml"))
    for role in ("viewer", "operator"):
        kubectl.run(control_plane, "apply", "-f", str(base / "rbac" / f"{role}.yaml"))
    kubectl.run(control_plane, "wait", "--for=condition=Established", "crd/gpunodestatuses.gpu.scheduling")
    client(control_plane).apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        *(_node(name) for name in (NODE, QUIET)),
        _node(HAMIS, **{HAMI_REGISTER: hami.encode_register(REGISTERED)}),
        *(_report(name) for name in (NODE, QUIET)),
        _heartbeat(NODE, age=0, seconds=3600),
        _heartbeat(QUIET, age=600, seconds=60),
    )
    status = json.dumps({"status": msgspec.to_builtins(status_of(INVENTORY))})
    kubectl.run(control_plane, "patch", "gns", NODE, "--subresource=status", "--type=merge", "-p", status)
    for account in ("default", "viewer", "operator", "stranger"):
        metadata = {"name": account, "namespace": TEAM}
        client(control_plane).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    pods = [_pod("placed", placed=True), _pod("waiting"), _pod("plain", managed=False)]
    # If the suite has installed the policies, only trusted users may create pods with an allocation.
    trusted = ("--as", "system:serviceaccount:tranche-system:tranche-static", "--as-group", "system:masters")
    kubectl.run(
        *(control_plane, "create", "-f", "-", *trusted),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}),
    )
    client(control_plane).apply(*(_grant(account) for account in ("viewer", "operator")))
    return control_plane


@pytest.fixture
def gpu(team: Layout) -> Gpu:
    """Run `kubectl gpu` as an account of the team, in the team's namespace."""

    def run(*arguments: str, account: str = "viewer") -> "subprocess.CompletedProcess[str]":
        kubeconfig = service_account_kubeconfig(team, namespace=TEAM, name=account)
        return gpu_command.run(kubeconfig, *arguments)

    return run
