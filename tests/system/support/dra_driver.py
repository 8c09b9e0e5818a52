"""What NVIDIA's DRA driver publishes, and what its claims look like: written by tests, as no such driver runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.client import client
from tests.support import namespaces
from tests.system.conftest import Namespace

if TYPE_CHECKING:
    from lab.client import Client
    from lab.layout import Layout

DRIVER: Final = "gpu.nvidia.com"
API: Final = "resource.k8s.io/v1"
Object = dict[str, Any]


def namespace(layout: Layout, name: str) -> Namespace:
    """Return a new namespace that Tranche serves."""
    namespaces.create(layout, name, {"gpu.scheduling/injection": "enabled"})
    return Namespace(layout, name)


def device_class(*, extended_resource: str = "nvidia.com/gpu") -> Object:
    """Return the class of the driver's chart."""
    spec: Object = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}


def slice_of(node: str, *uuids: str) -> Object:
    """Return the slice of a node with these cards, gpu-0, gpu-1 and so on; an empty UUID is left out."""
    devices: list[Object] = [
        {"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(len(uuids))
    ]
    for device, uuid in zip(devices, uuids, strict=True):
        if uuid:
            device["attributes"]["uuid"] = {"string": uuid}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}


def claim(name: str) -> Object:
    """Return a claim for one device of the driver."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def allocation(node: str, *devices: str) -> Object:
    """Return the status of a claim that has these devices, as kube-scheduler writes it."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}


def allocate(tenant: Namespace, name: str, node: str, *devices: str) -> None:
    """Create a claim that has these devices."""
    tenant.create(claim(name))
    tenant.patch("resourceclaims", name, {"status": allocation(node, *devices)}, subresource="status")


def release(tenant: Namespace, name: str) -> None:
    """Take the devices of a claim back, and delete it."""
    tenant.patch("resourceclaims", name, {"status": {"allocation": None}}, subresource="status")
    tenant.delete("resourceclaims", name)


def cards(api: Client, node: str) -> list[str]:
    """Return the UUIDs of the cards that the agent of a node reports."""
    return [each["uuid"] for each in api.get("gpunodestatus", node)["status"]["devices"]]


def remove(layout: Layout) -> None:
    """Delete the classes and slices of the driver."""
    for kind in ("deviceclasses", "resourceslices"):
        client(layout).delete_all(kind)
