"""Manifests of volumes, their claims and their classes."""

from __future__ import annotations

from typing import Any

from lab.provisioner import STORAGE_CLASS


def claim(name: str, *, storage_class: str = STORAGE_CLASS) -> dict[str, Any]:
    """Return the manifest of a claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }


def local_volume(
    name: str, *, node: str, storage_class: str, claim_ref: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the manifest of a volume that one node can use."""
    hosts = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [hosts]}},
            **({"claimRef": claim_ref} if claim_ref else {}),
        },
    }


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    """Return the manifest of a class whose volumes are bound when a pod is scheduled."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
