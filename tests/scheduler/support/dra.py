"""Objects of dynamic resource allocation, as the API has them."""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.nvidia.com"
Object = dict[str, Any]


def device_class(resource: str = "nvidia.com/gpu") -> Object:
    """Return the class of NVIDIA's driver."""
    return {"metadata": {"name": DRIVER}, "spec": {"extendedResourceName": resource}}


def slice_of(node: str, *uuids: str, driver: str = DRIVER, generation: int = 1, name: str = "") -> Object:
    """Return the slice of a node with these cards, gpu-0, gpu-1 and so on; an empty UUID is left out."""
    devices: list[Object] = [
        {"name": f"gpu-{number}", "attributes": {"uuid": {"string": uuid}} if uuid else {}}
        for number, uuid in enumerate(uuids)
    ]
    pool = {"name": node, "generation": generation}
    spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": devices}
    return {"metadata": {"name": name or f"{node}-{driver}"}, "spec": spec}


def claim(name: str, node: str = "", *devices: str, driver: str = DRIVER, admin: bool = False) -> Object:
    """Return a claim that has these devices of a node."""
    results = [{"driver": driver, "pool": node, "device": each, "adminAccess": admin} for each in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "status": status}


def allocated(claim_name: str) -> Object:
    """Return the status of a pod to which kube-scheduler has allocated a device."""
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r"}
    return {"extendedResourceClaimStatus": {"resourceClaimName": claim_name, "requestMappings": [mapping]}}
