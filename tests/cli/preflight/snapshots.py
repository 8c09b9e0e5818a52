"""Cluster snapshots and their parts for tests."""

import json
from typing import Any

import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.names import heartbeat_lease
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import ClusterSnapshot, GpuNode
from cli.preflight.findings import Finding
from cli.preflight.report import Report, evaluate
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from cluster.metadata import ObjectMeta
from cluster.server_version import ServerVersion
from scheduler.objects import Namespace

NOW = 1_800_000_000.0
REGISTERED = "GPU-a,10,40960,100,NVIDIA-A100,0,true,0,hami-core:"


def node(
    name: str = "n1",
    *,
    advertised: str | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **allocatable: str,
) -> GpuNode:
    """Return a node whose kubelet advertises the given number of nvidia.com/gpu."""
    counted = {"nvidia.com/gpu": advertised} if advertised is not None else {}
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": {**counted, **allocatable}}}, GpuNode)


def hami_node(name: str = "n1", *, advertised: str | None = "10", text: str = REGISTERED, **more: str) -> GpuNode:
    """Return a node that HAMi's plugin registered."""
    return node(name, advertised=advertised, annotations={"hami.io/node-nvidia-register": text, **more})


def status(name: str = "n1", *cards: Card) -> GpuNodeStatus:
    """Return the report of an agent, by default one card with ten slots."""
    inventory = NodeInventory(name, cards or (Card(uuid=f"GPU-{name}", index=0, memory_mib=40960),))
    return GpuNodeStatus(ObjectMeta(name=name), status_of(inventory))


def lease(name: str = "n1", *, renewed: str | None = "2027-01-15T08:00:00.000000Z") -> Lease:
    """Return the heartbeat Lease of a node's agent, by default renewed at `NOW`."""
    return Lease(LeaseMeta(name=heartbeat_lease(name)), LeaseSpec("a", 60, renewed))


def container(name: str = "main", gpu: int | None = 1, **more: Any) -> dict[str, Any]:
    """Return a container that requests `gpu` cards."""
    limits = {"nvidia.com/gpu": str(gpu), "nvidia.com/gpumem": "3k"} if gpu is not None else {}
    return {"name": name, "resources": {"limits": limits, "requests": limits}, **more}


def pod(
    name: str,
    *containers: dict[str, Any],
    node: str = "",
    phase: str = "",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    owner: str = "",
    **spec: Any,
) -> msgspec.Raw:
    """Return a pod of namespace `team` as the API server sends it."""
    body = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "annotations": annotations or {},
            "labels": labels or {},
            "ownerReferences": [{"kind": owner, "name": "it", "controller": True}] if owner else [],
        },
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": containers or [container()]}
        | spec,
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }
    return msgspec.Raw(json.dumps(body).encode())


def workload(
    kind: str = "Deployment",
    *containers: dict[str, Any],
    name: str = "web",
    namespace: str = "team",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    owner: str = "",
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a controller whose pods request a card."""
    template = {
        "metadata": {"annotations": annotations or {}, "labels": labels or {}, "creationTimestamp": None},
        "spec": {"schedulerName": "default-scheduler", "containers": containers or [container()], **spec},
    }
    owners = [{"kind": owner, "name": "it", "controller": True}] if owner else []
    group = "batch" if kind in ("Job", "CronJob") else "apps"
    job = {"jobTemplate": {"spec": {"template": template}}}
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": job if kind == "CronJob" else {"template": template},
        "status": status or {},
    }


def namespace(name: str = "team", **labels: str) -> Namespace:
    """Return a namespace, by default one that has opted in."""
    given = labels or {"gpu.scheduling/injection": "enabled"}
    return msgspec.convert({"metadata": {"name": name, "labels": given}}, Namespace)


def report_on(rules: Rules | None = None, **parts: Any) -> Report:
    """Return the report on a cluster with these parts."""
    fields = {"version": ServerVersion("1", "34"), "now": NOW, "namespaces": [namespace()], **parts}
    return evaluate(ClusterSnapshot(**fields), rules or Rules())


def about(report: Report, *words: str) -> Finding:
    """Return the only finding that contains all of `words`."""
    (found,) = [each for each in report.findings if all(word in str(msgspec.to_builtins(each)) for word in words)]
    return found
