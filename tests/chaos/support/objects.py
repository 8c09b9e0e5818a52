"""Builders of nodes, cards and pods as an API server shows them."""

from __future__ import annotations

import json
from typing import Any

MIB, SLOTS = 10_000, 4


def node(name: str = "n1", **spec: Any) -> dict[str, Any]:
    """Return a Node with this spec."""
    return {"metadata": {"name": name}, "spec": spec}


def status(name: str = "n1", *, cards: int = 2, memory: int = MIB, health: str = "Healthy") -> dict[str, Any]:
    """Return a GpuNodeStatus."""
    devices = [
        {"id": each, "uuid": f"{name}-{each}", "memoryMiB": memory, "cores": 1000, "slots": SLOTS, "health": health}
        for each in range(cards)
    ]
    return {"metadata": {"name": name}, "status": {"devices": devices, "total": cards}}


def lease(name: str = "n1", *, renewed: str = "now", seconds: int = 30) -> dict[str, Any]:
    """Return the heartbeat of a node's agent."""
    return {"metadata": {"name": f"agent-{name}"}, "spec": {"renewTime": renewed, "leaseDurationSeconds": seconds}}


def share(uuid: str = "n1-0", memory: int = 1000, cores: int = 100) -> dict[str, Any]:
    """Return one card of a container, as in the allocation annotation."""
    return {"uuid": uuid, "index": 0, "memoryMiB": memory, "cores": cores}


def limits(*, gpu: int = 1, memory: int = 1000, cores: int = 10) -> dict[str, str]:
    """Return the GPU limits of a container."""
    return {"nvidia.com/gpu": str(gpu), "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores)}


def pod(
    name: str = "p",
    *,
    uid: str = "",
    on: str = "",
    shares: dict[str, list[dict[str, Any]]] | None = None,
    asks: dict[str, str] | None = None,
    phase: str = "Pending",
    version: int = 1,
    claimed: tuple[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod with one container, `main`; `shares` become its allocation on node `on`.

    `claimed` are the name and the exclusivity of its GpuClaim, `version` is that of the cluster.
    """
    annotations = {}
    if claimed is not None:
        annotations["gpu.scheduling/claim"] = claimed[0]
    if shares is not None:
        mark = {"claim": {"name": claimed[0], "exclusivity": claimed[1]}} if claimed is not None else {}
        annotations["gpu.scheduling/allocation"] = json.dumps({"v": 1, "node": on, "containers": shares, **mark})
    metadata = {"namespace": "ns", "name": name, "uid": uid or name, "resourceVersion": str(version)}
    content: dict[str, Any] = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            "schedulerName": "tranche",
            "containers": [{"name": "main", "resources": {"limits": limits() if asks is None else asks}}],
            **spec,
        },
        "status": {"phase": phase},
    }
    if on:
        content["spec"]["nodeName"] = on
    return content


def claim(name: str, **devices: Any) -> dict[str, Any]:
    """Return a GpuClaim."""
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"devices": {"count": 1, **devices}}}


def card_lease(holder: str, card: int = 0, *, name: str = "", uid: str = "", version: int = 1) -> dict[str, Any]:
    """Return the Lease by which the pod with UID `holder` has a card of node n1."""
    metadata = {
        "name": name or f"gpu-n1-{card}",
        "uid": uid or f"{holder}-{card}",
        "resourceVersion": str(version),
        "labels": {"gpu.scheduling/managed": "true"},
        "annotations": {"gpu.scheduling/card": f"n1-{card}"},
    }
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 60}}
