"""What a thief of the scheduler's token cannot do to claims and PersistentVolumes, although a role permits patches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
CLASS = "rights"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"


@pytest.fixture(scope="module")
def thief(tranche: Layout) -> Path:
    """A kubeconfig with the scheduler's token."""
    return kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-scheduler")


@pytest.fixture(scope="module")
def storage_class(tranche: Layout) -> Iterator[str]:
    """A class whose volumes an administrator creates."""
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    client(tranche).apply(body)
    yield CLASS
    client(tranche).delete("storageclass", CLASS)


def claim(name: str) -> dict[str, Any]:
    """Return the manifest of a claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }


@pytest.fixture
def volume(tranche: Layout, namespace: Namespace, storage_class: str) -> Iterator[str]:
    """A PersistentVolume that is available."""
    name = f"pv-{namespace.name}"
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"test.example/kept": "yes"}},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/nowhere"},
        },
    }
    client(tranche).apply(body)
    in_phase(tranche, name, "Available")
    yield name
    client(tranche).delete("pv", name, wait=False)


def in_phase(layout: Layout, volume: str, phase: str) -> None:
    """Wait until a volume has a phase."""
    wait.until(
        lambda: kubectl.run(layout, "get", "pv", volume, "-o", "jsonpath={.status.phase}") == phase,
        what=f"PersistentVolume {volume} {phase}",
        timeout_s=PATIENCE_S,
    )


def patch(namespace: Namespace, thief: Path, what: str, name: str, body: dict[str, Any], *more: str) -> None:
    """Patch an object with the scheduler's token."""
    kubectl.run(
        namespace.layout,
        *("-n", namespace.name, "patch", what, name, "--type=merge", "-p", json.dumps(body), *more),
        kubeconfig=thief,
    )


def refusal(namespace: Namespace, thief: Path, what: str, name: str, body: dict[str, Any], *more: str) -> str:
    """Patch an object with the scheduler's token, which must be refused; return the error."""
    with pytest.raises(LabError) as caught:
        patch(namespace, thief, what, name, body, *more)
    return caught.value.why


def reference(namespace: Namespace, name: str) -> dict[str, Any]:
    """Return the claimRef of a claim."""
    uid = namespace.kubectl("get", "pvc", name, "-o", "jsonpath={.metadata.uid}")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace.name,
        "name": name,
        "uid": uid,
    }


def annotated(key: str, value: str | None) -> dict[str, Any]:
    """Return a patch of one annotation."""
    return {"metadata": {"annotations": {key: value}}}


def test_stolen_token_changes_no_claim(namespace: Namespace, thief: Path, storage_class: str, volume: str) -> None:
    """It may write the selected node of a claim without a volume, and nothing else."""
    namespace.create(claim("data"))
    patch(namespace, thief, "pvc", "data", annotated(SELECTED, "gpu-sim-0"))
    patch(namespace, thief, "pvc", "data", annotated(SELECTED, None))
    for body in (
        annotated("pv.kubernetes.io/bind-completed", "yes"),
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": None}},
        {"metadata": {"finalizers": ["test.example/kept"]}},
        {"spec": {"volumeName": volume}},
        {
            "metadata": {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": True}]
            }
        },
    ):
        assert "tranche-claims" in refusal(namespace, thief, "pvc", "data", body)
    assert "forbidden" in refusal(namespace, thief, "pvc", "data", {"status": {}}, "--subresource=status")
    with pytest.raises(LabError, match="forbidden"):
        kubectl.run(namespace.layout, "-n", namespace.name, "delete", "pvc", "data", kubeconfig=thief)

    patch(namespace, thief, "pv", volume, {"spec": {"claimRef": reference(namespace, "data")}})
    namespace.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s", "pvc/data")
    assert "tranche-claims" in refusal(namespace, thief, "pvc", "data", annotated(SELECTED, "gpu-sim-1"))


def test_stolen_token_takes_no_volume(namespace: Namespace, thief: Path, storage_class: str, volume: str) -> None:
    """It may reserve a free volume and take that back; one that is bound, or that was used, stays as it is."""
    namespace.create(claim("data"), claim("other"))
    layout, other = namespace.layout, reference(namespace, "other")
    for body in (
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
        {"spec": {"capacity": {"storage": "1Gi"}}},
        {"spec": {"accessModes": ["ReadWriteMany"]}},
        {"spec": {"mountOptions": ["suid"]}},
        {"spec": {"storageClassName": "another"}},
        {"spec": {"hostPath": {"path": "/etc"}}},
        {"metadata": {"labels": {"a": "b"}}},
        annotated("test.example/kept", None),
        annotated("pv.kubernetes.io/provisioned-by", "another"),
    ):
        reason = refusal(namespace, thief, "pv", volume, body)
        assert "tranche-volumes" in reason or "immutable" in reason
    assert "only reserve" in refusal(namespace, thief, "pv", volume, annotated(BOUND_BY, "yes"))

    bind = annotated(BOUND_BY, "yes") | {"spec": {"claimRef": reference(namespace, "data")}}
    patch(namespace, thief, "pv", volume, bind)
    in_phase(layout, volume, "Bound")
    release = annotated(BOUND_BY, None) | {"spec": {"claimRef": None}}
    assert "the volume is Bound" in refusal(namespace, thief, "pv", volume, release)
    assert "the volume is Bound" in refusal(namespace, thief, "pv", volume, {"spec": {"claimRef": other}})
    namespace.delete("pvc", "data")
    in_phase(layout, volume, "Released")
    assert "the volume is Released" in refusal(namespace, thief, "pv", volume, release)
    assert "the volume is Released" in refusal(namespace, thief, "pv", volume, {"spec": {"claimRef": other}})
    assert "forbidden" in refusal(namespace, thief, "pv", volume, {"status": {}}, "--subresource=status")
    with pytest.raises(LabError, match="forbidden"):
        kubectl.run(layout, "delete", "pv", volume, kubeconfig=thief)


def test_reservation_by_a_user_is_not_taken(namespace: Namespace, thief: Path, storage_class: str, volume: str) -> None:
    """A user has reserved a volume by name: the token may not give it to another claim."""
    by_name = {"namespace": namespace.name, "name": "later", "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    kubectl.run(
        namespace.layout, "patch", "pv", volume, "--type=merge", "-p", json.dumps({"spec": {"claimRef": by_name}})
    )
    namespace.create(claim("other"))
    body = {"spec": {"claimRef": reference(namespace, "other")}}
    assert f"reserved for claim {namespace.name}/later" in refusal(namespace, thief, "pv", volume, body)
    assert "only reserve" in refusal(namespace, thief, "pv", volume, {"spec": {"claimRef": None}})
