"""Builders of nodes, cards and pods as an API server shows them."""

from __future__ import annotations

import json
from typing import Any

MIB, SLOTS = 10_000, 4


def node(name: str = "n1", **spec: Any) -> dict[str, Any]:
    """Return a Node."""
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
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod with one container, `main`; `shares` become its allocation on node `on`."""
    annotations = {}
    if shares is not None:
        annotations["gpu.scheduling/allocation"] = json.dumps({"v": 1, "node": on, "containers": shares})
    content: dict[str, Any] = {
        "metadata": {"namespace": "ns", "name": name, "uid": uid or name, "annotations": annotations},
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
