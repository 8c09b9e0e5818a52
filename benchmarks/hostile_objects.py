"""The most expensive objects that a tenant can create, of each kind that the scheduler reads.

A hostile pod, and a budget or a volume claim that is not a `giant`, are as large as the limits allow. A giant is as
large as the API server accepts, which is far beyond them.
"""

from typing import Any, Final

from allocation import label_selector, limits

_GIANT: Final = 20_000
"""Expressions of a selector of about a megabyte; etcd accepts one and a half."""


def budget(name: str, number: int, *, giant: bool) -> dict[str, Any]:
    """Return a PodDisruptionBudget that matches all pods, once all its expressions have been compared."""
    most = _GIANT if giant else label_selector.MOST_EXPRESSIONS
    return {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": _absent(number, most)}}


def volume_claim(name: str, number: int, *, giant: bool) -> dict[str, Any]:
    """Return a PersistentVolumeClaim without a class that every volume has to be compared with, and none matches."""
    most = _GIANT if giant else label_selector.MOST_EXPRESSIONS - 1
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "selector": _absent(number, most) | {"matchLabels": {"nowhere": "true"}},
        },
    }


def claim(name: str, number: int) -> dict[str, Any]:
    """Return a GpuClaim in which each list and text is as long as its definition allows."""
    long = "x" * 63
    return {
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "count": 1 + number % 8,
                "policy": "preferIds",
                "preferIds": [(each + number) % 1024 for each in range(128)],
            },
            "topology": {"mode": "Preferred", "minBandwidthGBps": 1 + number, "maxTier": number % 4},
            "network": {"preferredHcas": [f"{number:05}-{each:02}-{long}"[:63] for each in range(16)], "minPorts": 64},
        },
    }


def resource_claim(name: str, number: int) -> dict[str, Any]:
    """Return a ResourceClaim of 32 requests with 32 selectors of about 300 characters each."""
    requests = [
        {
            "name": f"request-{request}",
            "exactly": {
                "deviceClassName": f"class-{number}",
                "selectors": [
                    {"cel": {"expression": f'device.driver == "{number}-{request}-{selector}-{"x" * 280}"'}}
                    for selector in range(32)
                ],
            },
        }
        for request in range(32)
    ]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def pod(name: str, number: int, *, hostile: bool, fits: bool = False) -> dict[str, Any]:
    """Return a pod whose selector matches no node unless it `fits`; a hostile pod is as large as admission allows."""
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}
    spec: dict[str, Any] = {
        "schedulerName": "tranche",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": amounts, "requests": amounts}}],
    }
    if not fits:
        spec["nodeSelector"] = {"nowhere": "true"}
    metadata: dict[str, Any] = {"name": name}
    if hostile:
        spec |= _expensive(number)
        metadata["labels"] = {f"label-{each}": f"{number}-{each}" for each in range(limits.POD_LABELS)}
        card = f"GPU-{number:08}-"
        listed = ",".join(f"{card}{each:023}" for each in range(limits.LIST_CHARACTERS // 37))
        metadata["annotations"] = {"nvidia.com/nouse-gpuuuid": listed}
    return {"metadata": metadata, "spec": spec}


def _expensive(number: int) -> dict[str, Any]:
    """Return a spec at every limit; in each selector term, only the last expression matches no node."""
    per_term = limits.NODE_EXPRESSIONS // limits.NODE_SELECTOR_TERMS
    passing = [{"key": f"example.com/label-{each}", "operator": "Exists"} for each in range(per_term - 1)]
    failing = {"key": f"missing-{number}", "operator": "In", "values": [str(number), "other"][: 1 + number % 2]}
    terms = [{"matchExpressions": [*passing, failing]}] * limits.NODE_SELECTOR_TERMS
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    values = [f"{number}-{each}" for each in range(limits.SELECTOR_VALUES - limits.NODE_EXPRESSIONS - 110)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "example.com/zone", "labelSelector": selector}
        ]
    }
    tolerations = limits.TOLERATIONS - 2  # the API server adds two
    quiet = {"cpu": "1m", "memory": f"{number}"}
    gpu = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}
    return {
        "nodeSelector": {},
        "affinity": {"nodeAffinity": required, "podAntiAffinity": apart},
        "tolerations": [{"key": f"key-{number}-{each}", "operator": "Exists"} for each in range(tolerations)],
        "containers": [
            {"name": "main", "image": "none", "resources": {"limits": gpu, "requests": gpu}},
            *(
                {"name": f"side-{each}", "image": "none", "resources": {"requests": quiet}}
                for each in range(limits.CONTAINERS - 1)
            ),
        ],
    }


def _absent(number: int, count: int) -> dict[str, Any]:
    return {"matchExpressions": [{"key": f"k{number}-{each}", "operator": "DoesNotExist"} for each in range(count)]}
