"""Claims that do not exist yet are read as they would be created, and checked in words."""

from typing import Any

import pytest

from cluster.manifest import UnreadableManifestError
from scheduler.api.manifest_claims import read_claims
from tests.scheduler.support.builders import pod

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}


def claim(name: str = "data", spec: Any = SPEC, **metadata: Any) -> dict[str, Any]:
    """Return the manifest of a claim."""
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def test_a_claim_is_not_bound_whatever_its_manifest_says() -> None:
    """A manifest from `kubectl get -o yaml` has a status, and annotations that only controllers write."""
    annotations = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.kubernetes.io/selected-node": "n1",
        "volume.beta.kubernetes.io/storage-class": "fast",
    }
    made = claim(spec={**SPEC, "volumeName": "pv-1"}, uid="u", deletionTimestamp="now", annotations=annotations)
    (read,) = read_claims([made | {"status": {"phase": "Bound"}}], pod("p"), {})
    assert (read.metadata.uid, read.metadata.deletion_timestamp, read.status.phase) == ("", None, "Pending")
    assert not read.is_bound
    assert (read.storage_class, read.spec.volume_name) == ("fast", "pv-1")
    assert "volume.kubernetes.io/selected-node" not in read.metadata.annotations
    assert read.metadata.namespace == pod("p").metadata.namespace


def test_ephemeral_volumes_have_claims_that_the_pod_owns() -> None:
    """Their names are those that Kubernetes' controller gives them."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**SPEC, "storageClassName": "local"}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "tmp", "emptyDir": {}}]
    made = pod("train-0")
    own, shared = read_claims([claim()], made, {"spec": {"volumes": volumes}})
    assert (own.metadata.name, own.storage_class) == ("train-0-scratch", "local")
    assert [(each.uid, each.controller) for each in own.metadata.owner_references] == [(made.uid, True)]
    assert (shared.metadata.name, shared.metadata.owner_references) == ("data", ())


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
        ([claim(spec={**SPEC, "selector": {"matchLabels": {str(n): "" for n in range(400)}}})], "has 400 labels"),
        ([claim(namespace="other")], "namespace 'other', but the pod has"),
    ],
)
def test_an_invalid_claim_is_refused(manifests: list[dict[str, Any]], message: str) -> None:
    """The message names the claim, the field, and what it may hold."""
    with pytest.raises(UnreadableManifestError, match=message):
        read_claims(manifests, pod("p"), {})
