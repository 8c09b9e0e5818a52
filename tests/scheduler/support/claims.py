"""GpuClaims, and pods as admission prepares them for a claim."""

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.claim import resources
from allocation.settings import AllocationSettings
from allocation.wire import record
from cluster.gpu_claim import GpuClaim
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod

WHOLE_MIB = 1000
"""The memory of a card of `builders.status`."""

DEVICES: tuple[dict[str, Any], ...] = (
    {"count": 1},
    {"count": 2},
    {"count": 2, "policy": "spread"},
    {"count": 1, "policy": "preferIds", "preferIds": [1]},
    {"count": 1, "exclusivity": "Shared"},
    {"count": 2, "exclusivity": "Shared", "memoryMiB": 300},
    {"count": 1, "exclusivity": "Shared", "memoryMiB": 700, "cores": 60},
    {"count": 1, "exclusivity": "Shared", "cores": 100},
    {"count": 1, "exclusivity": "MIG"},
    {"count": 1, "exclusivity": "MIG", "memoryMiB": 9000},
    {"count": 1, "exclusivity": "MIG", "profile": "1g.5gb"},
)
"""Devices of every kind that a claim can ask for."""

TOPOLOGIES: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "Required"},
    {"mode": "Required", "maxTier": 1},
    {"mode": "Required", "minBandwidthGBps": 1},
    {"maxTier": 1},
    {"mode": "Ignore"},
)
"""Every kind of connection that a claim can ask for."""


def manifest(
    name: str,
    *,
    namespace: str = "",
    labels: dict[str, str] | None = None,
    topology: dict[str, Any] | None = None,
    **devices: Any,
) -> dict[str, Any]:
    """Return the manifest of a claim for one card, unless `devices` say something else."""
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    connections = {"topology": topology} if topology else {}
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"devices": {"count": 1, **devices}, **selector, **connections},
    }


def claim(name: str, *, namespace: str = "default", **fields: Any) -> GpuClaim:
    """Return a claim for devices, whose names are those of the API (`manifest`); one exclusive card by default."""
    written = manifest(name, namespace=namespace, **fields)
    return msgspec.convert({**written, "metadata": {**written["metadata"], "uid": f"uid-{name}"}}, GpuClaim)


def limits(given: GpuClaim) -> dict[str, str]:
    """Return the limits that admission writes into a container for a claim."""
    return {name: str(amount) for name, amount in resources(given.spec.devices, AllocationSettings()).items()}


def container(given: GpuClaim, name: str = "main") -> dict[str, Any]:
    """Return a container as admission prepares it for a claim."""
    return {"name": name, "resources": {"limits": limits(given), "requests": limits(given)}}


def claiming(name: str, given: GpuClaim, *, containers: Iterable[str] = ("main",), **fields: Any) -> Pod:
    """Return a pod as admission prepares it for a claim, with GPU containers of these names."""
    annotations = {names.CLAIM: given.metadata.name, **fields.pop("annotations", {})}
    selector = {**given.spec.node_labels, **fields.pop("nodeSelector", {})}
    prepared = {"containers": [container(given, each) for each in containers], "nodeSelector": selector}
    return pod(name, namespace=given.metadata.namespace, annotations=annotations, **{**prepared, **fields})


def running(name: str, given: GpuClaim, *, node: str, cards: Iterable[int] = (0,), **more: Any) -> Pod:
    """Return a pod with a claim that runs on cards of `builders.status`."""
    devices, containers = given.spec.devices, tuple(more.pop("containers", ("main",)))
    exclusive = devices.exclusivity == "Exclusive"
    memory, cores = (WHOLE_MIB, 1000) if exclusive else (devices.memory_mib or 0, (devices.cores or 0) * 10)
    shares = tuple(CardShare(f"GPU-{node}-{index}", index, memory, cores) for index in cards)
    mark = ClaimMark(given.metadata.name, devices.exclusivity)
    text = record.encode(Allocation(node, dict.fromkeys(containers, shares), mark))
    annotations = {names.ALLOCATION: text}
    return claiming(
        name, given, containers=containers, annotations=annotations, node=node, **{"phase": "Running", **more}
    )


def some_claim(chance: random.Random, name: str) -> GpuClaim:
    """Return a claim of any kind, some with a selector of label `zone`."""
    labels = {"zone": chance.choice("ab")} if chance.random() < 0.2 else {}
    devices = chance.choice(DEVICES)
    topology = chance.choice(TOPOLOGIES) if devices.get("exclusivity") != "MIG" else {}
    return claim(name, labels=labels, topology=topology, **devices)
