"""What a thief of the scheduler's token cannot do to claims and PersistentVolumes, although a role permits patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.client import client
from tests.support import identities, volumes
from tests.support.cases import case
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.client import Client
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
CLASS = "rights"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"
VOLUME = "rights"


@pytest.fixture(scope="module")
def thief(server: Layout) -> Client:
    """The API by the scheduler's token."""
    return identities.process(server, "scheduler")


@pytest.fixture(scope="module")
def storage_class(server: Layout) -> Iterator[str]:
    """A class whose volumes an administrator creates."""
    client(server).apply(volumes.storage_class(CLASS, "kubernetes.io/no-provisioner"))
    yield CLASS
    client(server).delete("storageclass", CLASS)


class Storage:
    """A PersistentVolume that is available, two claims, and what the thief does to them."""

    def __init__(self, layout: Layout, namespace: str, thief: Client) -> None:
        self.api, self.namespace, self._thief = client(layout), namespace, thief
        claims = (volumes.claim(name, storage_class=CLASS) for name in ("data", "other"))
        self.api.create(*claims, namespace=namespace)

    def in_phase(self, kind: str, name: str, phase: str) -> None:
        """Wait until a volume or a claim has a phase."""
        self.api.until(
            lambda shown: shown[name].get("status", {}).get("phase") == phase,
            kind,
            namespace=self.namespace if kind == "pvc" else "",
            what=f"{kind} {name} {phase}",
            timeout_s=PATIENCE_S,
        )

    def refusal(self, kind: str, name: str, body: dict[str, Any], *, subresource: str = "") -> str:
        """Patch an object with the scheduler's token; return why it is refused, empty if it is not."""
        return refusal(lambda: self._thief.patch(kind, name, body, namespace=self.namespace, subresource=subresource))

    def deletion_refusal(self, kind: str, name: str) -> str:
        """Delete an object with the scheduler's token; return why it is refused, empty if it is not."""
        return refusal(lambda: self._thief.delete(kind, name, namespace=self.namespace, wait=False))

    def reserving(self, name: str) -> dict[str, Any]:
        """Return the patch that reserves the volume for a claim."""
        uid = self.api.get("pvc", name, namespace=self.namespace)["metadata"]["uid"]
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.namespace, "name": name}
        return {"spec": {"claimRef": {**head, "uid": uid}}}


@pytest.fixture
def storage(server: Layout, namespace: str, storage_class: str, thief: Client) -> Iterator[Storage]:
    """A volume and two claims."""
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME, "annotations": {"test.example/kept": "yes"}},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/nowhere"},
        },
    }
    client(server).apply(body)
    made = Storage(server, namespace, thief)
    made.in_phase("pv", VOLUME, "Available")
    yield made
    client(server).delete_all("pvc", namespace=namespace)
    client(server).delete("pv", VOLUME)


def annotated(key: str, value: str | None) -> dict[str, Any]:
    """Return a patch of one annotation."""
    return {"metadata": {"annotations": {key: value}}}


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": True}


CLAIM_CHANGES: tuple[dict[str, Any], ...] = (
    annotated("pv.kubernetes.io/bind-completed", "yes"),
    {"metadata": {"labels": {"a": "b"}}},
    {"metadata": {"finalizers": None}},
    {"metadata": {"finalizers": ["test.example/kept"]}},
    {"spec": {"volumeName": VOLUME}},
    {"metadata": {"ownerReferences": [OWNER]}},
)


def test_stolen_token_changes_no_claim(storage: Storage) -> None:
    """It may write the selected node of a claim without a volume, and nothing else."""
    for body in CLAIM_CHANGES:
        with case(body=body):
            assert "tranche-claims" in storage.refusal("pvc", "data", body)
    assert storage.refusal("pvc", "data", annotated(SELECTED, "gpu-sim-0")) == ""
    assert storage.refusal("pvc", "data", annotated(SELECTED, None)) == ""


def test_stolen_token_changes_no_bound_claim(storage: Storage) -> None:
    """Nor its status, and it deletes none."""
    assert "forbidden" in storage.refusal("pvc", "data", {"status": {}}, subresource="status")
    assert "forbidden" in storage.deletion_refusal("pvc", "data")
    assert storage.refusal("pv", VOLUME, storage.reserving("data")) == ""
    storage.in_phase("pvc", "data", "Bound")
    assert "tranche-claims" in storage.refusal("pvc", "data", annotated(SELECTED, "gpu-sim-1"))


VOLUME_CHANGES: tuple[dict[str, Any], ...] = (
    {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    {"spec": {"capacity": {"storage": "1Gi"}}},
    {"spec": {"accessModes": ["ReadWriteMany"]}},
    {"spec": {"mountOptions": ["suid"]}},
    {"spec": {"storageClassName": "another"}},
    {"spec": {"hostPath": {"path": "/etc"}}},
    {"metadata": {"labels": {"a": "b"}}},
    annotated("test.example/kept", None),
    annotated("pv.kubernetes.io/provisioned-by", "another"),
)


def test_stolen_token_changes_no_volume(storage: Storage) -> None:
    """Except for the claim for which it is reserved."""
    for body in VOLUME_CHANGES:
        with case(body=body):
            reason = storage.refusal("pv", VOLUME, body)
            assert "tranche-volumes" in reason or "immutable" in reason


def test_stolen_token_takes_no_volume(storage: Storage) -> None:
    """It may reserve a free volume and take that back; one that is bound, or that was used, stays as it is."""
    assert "only reserve" in storage.refusal("pv", VOLUME, annotated(BOUND_BY, "yes"))
    assert storage.refusal("pv", VOLUME, annotated(BOUND_BY, "yes") | storage.reserving("data")) == ""
    storage.in_phase("pv", VOLUME, "Bound")
    release, other = annotated(BOUND_BY, None) | {"spec": {"claimRef": None}}, storage.reserving("other")
    for body in (release, other):
        assert "the volume is Bound" in storage.refusal("pv", VOLUME, body)
    storage.api.delete("pvc", "data", namespace=storage.namespace)
    storage.in_phase("pv", VOLUME, "Released")
    for body in (release, other):
        assert "the volume is Released" in storage.refusal("pv", VOLUME, body)
    assert "forbidden" in storage.refusal("pv", VOLUME, {"status": {}}, subresource="status")
    assert "forbidden" in storage.deletion_refusal("pv", VOLUME)


def test_reservation_by_a_user_is_not_taken(storage: Storage) -> None:
    """A user has reserved a volume by name: the token may not give it to another claim."""
    by_name = {"namespace": storage.namespace, "name": "later", "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    storage.api.patch("pv", VOLUME, {"spec": {"claimRef": by_name}})
    why = storage.refusal("pv", VOLUME, storage.reserving("other"))
    assert f"reserved for claim {storage.namespace}/later" in why
    assert "only reserve" in storage.refusal("pv", VOLUME, {"spec": {"claimRef": None}})
