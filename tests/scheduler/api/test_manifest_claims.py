"""Claims that do not exist yet are read as they would be created, and checked in words."""

from typing import Any

import pytest

from cluster.manifest import UnreadableManifestError
from scheduler.api import manifest_claims
from scheduler.volumes.objects import Claim, ClassMeta, StorageClass
from tests.scheduler.support.builders import pod

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}


def claim(name: str = "data", spec: Any = SPEC, **metadata: Any) -> dict[str, Any]:
    """Return the manifest of a claim."""
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def read_claims(
    manifests: list[dict[str, Any]], pod_manifest: dict[str, Any] | None = None, *classes: StorageClass
) -> list[Claim]:
    """Return the claims that are created with pod `train-0`."""
    return manifest_claims.read_claims(manifests, pod=pod("train-0"), pod_manifest=pod_manifest or {}, classes=classes)


def storage_class(name: str, created: str = "", *, key: str = "storageclass.kubernetes.io/is-default-class") -> Any:
    """Return a class that is the default if it has a time of creation."""
    return StorageClass(ClassMeta(name, annotations={key: "true"} if created else {}, creation_timestamp=created))


def test_a_claim_is_not_bound_whatever_its_manifest_says() -> None:
    """A manifest from `kubectl get -o yaml` has a status, and annotations that only controllers write."""
    annotations = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.kubernetes.io/selected-node": "n1",
        "volume.beta.kubernetes.io/storage-class": "fast",
    }
    made = claim(spec={**SPEC, "volumeName": "pv-1"}, uid="u", deletionTimestamp="now", annotations=annotations)
    (read,) = read_claims([made | {"status": {"phase": "Bound"}}])
    assert (read.metadata.uid, read.metadata.deletion_timestamp, read.status.phase) == ("", None, "Pending")
    assert not read.is_bound
    assert (read.storage_class, read.spec.volume_name) == ("fast", "pv-1")
    assert "volume.kubernetes.io/selected-node" not in read.metadata.annotations
    assert read.metadata.namespace == pod("p").metadata.namespace


def test_ephemeral_volumes_have_claims_of_their_own() -> None:
    """Their names are those that Kubernetes' controller gives them."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**SPEC, "storageClassName": "local"}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "tmp", "emptyDir": {}}]
    shared, own = read_claims([claim()], {"spec": {"volumes": volumes}})
    assert (shared.metadata.name, shared.storage_class) == ("data", "")
    assert (own.metadata.name, own.storage_class) == ("train-0-scratch", "local")


def test_a_claim_without_a_class_gets_the_default_one() -> None:
    """The newest default counts, then the first by name; an empty class asks for none."""
    beta = "storageclass.beta.kubernetes.io/is-default-class"
    classes = [
        storage_class("b", "2026-02-01T00:00:00Z"),
        storage_class("a", "2026-02-01T00:00:00Z", key=beta),
        storage_class("old", "2026-01-01T00:00:00Z"),
        storage_class("newest-but-not-default"),
    ]
    made, none = read_claims([claim(), claim("none", {**SPEC, "storageClassName": ""})], {}, *classes)
    assert (made.storage_class, none.storage_class) == ("a", "")


@pytest.mark.parametrize(
    ("manifests", "message"),
    [
        ([claim(), claim()], "data occurs twice"),
        ([claim(name="")], "no metadata.name"),
        ([claim(spec={**SPEC, "accessModes": 3})], "cannot be read"),
        ([claim(spec={**SPEC, "accessModes": []})], "spec.accessModes holds nothing; write one or more of"),
        ([claim(spec={**SPEC, "accessModes": ["RWO"]})], "spec.accessModes holds RWO"),
        ([claim(spec={**SPEC, "volumeMode": "Object"})], "spec.volumeMode holds 'Object'"),
        ([claim(spec={**SPEC, "resources": {"requests": {"storage": "ten"}}})], "'ten' is not a Kubernetes quantity"),
        ([claim(spec={"accessModes": ["ReadWriteOnce"]})], "requests.storage holds '0'; write an amount above 0"),
        ([claim(spec={**SPEC, "selector": {"matchLabels": {str(n): "" for n in range(400)}}})], "at most 64 labels"),
        ([claim(namespace="other")], "namespace 'other', but the pod has"),
    ],
)
def test_an_invalid_claim_is_refused(manifests: list[dict[str, Any]], message: str) -> None:
    """The message names the claim, the field, and what it may hold."""
    with pytest.raises(UnreadableManifestError, match=message):
        read_claims(manifests)
