"""Claims and PersistentVolumes for benchmarks, as the API server sends them."""

from collections.abc import Iterator
from typing import Any, Final

from benchmarks import cluster, fleets

ZONES: Final = 10
ZONE: Final = "topology.kubernetes.io/zone"
MATCHED: Final = "matched"
"""The class of claims that get an available PersistentVolume together with the node of their first pod."""
PROVISIONED: Final = "provisioned"
"""The class of claims for which a volume is provisioned on the node of their first pod."""
_PROVISIONERS: Final = {MATCHED: "kubernetes.io/no-provisioner", PROVISIONED: "csi.example"}
_HOSTNAME: Final = "kubernetes.io/hostname"


def zone_of(number: int) -> str:
    """Return the zone of a node or volume with this number."""
    return f"zone-{number % ZONES}"


def node_labels(number: int) -> dict[str, str]:
    """Return the labels of a node that the affinity of volumes refers to."""
    return {_HOSTNAME: fleets.node(number), ZONE: zone_of(number)}


def classes() -> Iterator[dict[str, Any]]:
    """Return both StorageClasses."""
    for name, provisioner in _PROVISIONERS.items():
        yield {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}


def zonal(number: int) -> dict[str, Any]:
    """Return the node affinity of a volume that the nodes of one zone can use."""
    return _affinity(ZONE, zone_of(number))


def local(number: int) -> dict[str, Any]:
    """Return the node affinity of a volume that one node can use."""
    return _affinity(_HOSTNAME, fleets.node(number))


def claim(name: str, *, volume: str = "", storage_class: str = "") -> dict[str, Any]:
    """Return a claim that is bound to a PersistentVolume, or an unbound one of a class."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    metadata: dict[str, Any] = {"name": name, "namespace": cluster.NAMESPACE, "uid": name}
    if not volume:
        return {"metadata": metadata, "spec": {**spec, "storageClassName": storage_class}}
    annotations = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    return {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "storageClassName": "", "volumeName": volume},
        "status": {"phase": "Bound"},
    }


def volume(name: str, affinity: dict[str, Any] | None = None, *, claim: str = "") -> dict[str, Any]:
    """Return a PersistentVolume of a CSI driver that is bound to a claim, or available to those of class MATCHED."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "csi": {"driver": "csi.example", "volumeHandle": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if affinity is not None:
        spec["nodeAffinity"] = affinity
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": cluster.NAMESPACE, "name": claim}
    else:
        spec["storageClassName"] = MATCHED
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def mounting(pod: dict[str, Any], claim: str) -> dict[str, Any]:
    """Return `pod` with a volume for a claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def _affinity(key: str, value: str) -> dict[str, Any]:
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
