"""Storage objects for tests, built from the fields that a test depends on."""

from typing import Any

import msgspec

from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)

ZONE = "topology.kubernetes.io/zone"


def claim(
    name: str,
    *,
    volume: str = "",
    size: str = "10Gi",
    storage_class: str = "local",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    selected: str = "",
    owner: str = "",
    namespace: str = "default",
    deleted: str | None = None,
    phase: str = "",
    **spec: Any,
) -> Claim:
    """Return a claim, which is bound if it has a `volume`; `owner` is the UID of the pod that it was made for."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if selected:
        annotations["volume.kubernetes.io/selected-node"] = selected
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": annotations,
            "deletionTimestamp": deleted,
            "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        },
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class,
            "volumeName": volume,
            **spec,
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }
    return msgspec.convert(body, Claim)


def volume(
    name: str,
    *,
    node: str = "",
    zone: str = "",
    handle: str = "",
    driver: str = "csi.example.com",
    claim: str = "",
    claim_uid: str = "",
    size: str = "10Gi",
    storage_class: str = "local",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    labels: dict[str, str] | None = None,
    phase: str = "",
    deleted: str | None = None,
    **spec: Any,
) -> PersistentVolume:
    """Return a PersistentVolume: local to a `node` or a `zone`, of a CSI driver if it has a `handle`."""
    expressions = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (("kubernetes.io/hostname", node), (ZONE, zone))
        if value
    ]
    more: dict[str, Any] = {}
    if expressions:
        more["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    if handle:
        more["csi"] = {"driver": driver, "volumeHandle": handle}
    if claim:
        more["claimRef"] = {"namespace": "default", "name": claim, "uid": claim_uid}
    body = {
        "metadata": {"name": name, "labels": labels or {}, "deletionTimestamp": deleted},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "storageClassName": storage_class,
            **more,
            **spec,
        },
        "status": {"phase": phase or ("Bound" if claim and claim_uid else "Available")},
    }
    return msgspec.convert(body, PersistentVolume)


def storage_class(
    name: str = "local", *, provisioner: str = "kubernetes.io/no-provisioner", is_delayed: bool = True, **fields: Any
) -> StorageClass:
    """Return a class, by default one of local volumes that an administrator creates."""
    mode = "WaitForFirstConsumer" if is_delayed else "Immediate"
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **fields}
    return msgspec.convert(body, StorageClass)


def csi_node(name: str, *, migrated: str = "", **limits: int) -> CsiNode:
    """Return the CSINode of a node, with a limit by driver, whose dots are written as underscores."""
    drivers = [{"name": driver.replace("_", "."), "allocatable": {"count": count}} for driver, count in limits.items()]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return msgspec.convert(
        {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}, CsiNode
    )


def csi_driver(name: str = "csi.example.com", *, storage_capacity: bool = True) -> CsiDriver:
    """Return a driver, by default one that reports its capacity."""
    return msgspec.convert({"metadata": {"name": name}, "spec": {"storageCapacity": storage_capacity}}, CsiDriver)


def capacity(
    name: str, *, size: str | None, labels: dict[str, str] | None = None, storage_class: str = "fast", **fields: Any
) -> StorageCapacity:
    """Return the free capacity of a class for the nodes with these labels; None means that nodes do not reach it."""
    topology = {"matchLabels": labels} if labels is not None else None
    body = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "nodeTopology": topology,
        "storageClassName": storage_class,
        "capacity": size,
        **fields,
    }
    return msgspec.convert(body, StorageCapacity)


def attachment(name: str, *, node: str, volume: str, driver: str = "csi.example.com") -> VolumeAttachment:
    """Return a VolumeAttachment."""
    body = {
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}},
    }
    return msgspec.convert(body, VolumeAttachment)


def mounts(*claims: str) -> list[dict[str, Any]]:
    """Return the `spec.volumes` of a pod that uses these claims."""
    return [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)]
