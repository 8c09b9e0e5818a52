"""A DRA driver of RDMA adapters as tests pretend it: its class, its slices, and claims of its devices.

No driver runs: kube-scheduler allocates by what the slices say, and no kubelet prepares anything.
"""

from __future__ import annotations

from typing import Any, Final

from tests.system.conftest import pod

DRIVER: Final = "rdma.example.com"
API: Final = "resource.k8s.io/v1"
Object = dict[str, Any]


def device_class() -> Object:
    """Return the class of all adapters."""
    spec = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}


def slice_of(node: str, count: int) -> Object:
    """Return the slice of a node with this number of adapters."""
    devices = [{"name": f"mlx-{number}"} for number in range(count)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}


def claim(name: str) -> Object:
    """Return a claim of one adapter."""
    spec = {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": DRIVER}}]}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod_with_adapter(name: str, **limits: int | str) -> tuple[Object, Object]:
    """Return the claim of an adapter, and a pod that has it and the cards of its `limits`."""
    made = pod(name, **limits)
    made["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": name}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return claim(name), made


def node_of(claimed: Object) -> str:
    """Return the node whose adapter a claim has; empty if it has none."""
    allocation = claimed.get("status", {}).get("allocation")
    return str(allocation["devices"]["results"][0]["pool"]) if allocation else ""
