"""GpuClaims, and pods as admission prepares them for their claim."""

from collections.abc import Iterable
from typing import Any

import msgspec

from allocation import claim, names
from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.settings import AllocationSettings
from allocation.wire import record
from cluster.gpu_claim import GpuClaim
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod

WHOLE_MIB = 1000
"""The memory of a card of `builders.status`."""


def manifest(name: str, *, namespace: str = "", labels: dict[str, str] | None = None, **devices: Any) -> dict[str, Any]:
    """Return the manifest of a claim for one card, unless `devices` say something else."""
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"devices": {"count": 1, **devices}, **selector},
    }


def gpu_claim(
    name: str, *, namespace: str = "default", labels: dict[str, str] | None = None, **devices: Any
) -> GpuClaim:
    """Return a claim for one card, unless `devices` say something else."""
    return msgspec.convert(manifest(name, namespace=namespace, labels=labels, **devices), GpuClaim)


def claiming(name: str, claimed: GpuClaim, *, containers: Iterable[str] = ("main",), **more: Any) -> Pod:
    """Return a pod with `containers` that have the cards of a claim, as admission leaves it."""
    given = claim.resources(claimed.spec.devices, AllocationSettings())
    limits = {resource: str(amount) for resource, amount in given.items()}
    annotations = {names.CLAIM: claimed.metadata.name, **more.pop("annotations", {})}
    resources = {"limits": limits, "requests": limits}
    specs = [{"name": each, "resources": resources} for each in containers]
    return pod(name, annotations=annotations, **{"namespace": claimed.metadata.namespace, "containers": specs, **more})


def running(name: str, claimed: GpuClaim, *, node: str, cards: Iterable[int] = (0,), **more: Any) -> Pod:
    """Return a pod with a claim that runs on cards of `builders.status`."""
    devices, containers = claimed.spec.devices, tuple(more.pop("containers", ("main",)))
    exclusive = devices.exclusivity == "Exclusive"
    memory, cores = (WHOLE_MIB, 1000) if exclusive else (devices.memory_mib or 0, (devices.cores or 0) * 10)
    shares = tuple(CardShare(f"GPU-{node}-{index}", index, memory, cores) for index in cards)
    mark = ClaimMark(claimed.metadata.name, devices.exclusivity)
    text = record.encode(Allocation(node, dict.fromkeys(containers, shares), mark))
    annotations = {names.ALLOCATION: text}
    return claiming(
        name, claimed, containers=containers, annotations=annotations, node=node, **{"phase": "Running", **more}
    )
