"""Reads the PersistentVolumeClaims that would be created together with a pod that does not exist yet."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from allocation import quantity
from allocation.errors import AllocationError
from allocation.label_selector import OVERSIZED
from cluster.manifest import UnreadableManifestError, without_nulls
from scheduler.objects import Pod
from scheduler.volumes.objects import BIND_COMPLETED, SELECTED_NODE, Claim, ClaimStatus, StorageClass

_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Filesystem", "Block")


def read_claims(
    manifests: Iterable[dict[str, Any]], *, pod: Pod, pod_manifest: dict[str, Any], classes: Iterable[StorageClass]
) -> list[Claim]:
    """Return the claims of `manifests`, and those that Kubernetes creates for the generic ephemeral volumes of a pod.

    Each is as it would be just after its creation: not bound, without a selected node, and of the default one of
    `classes` if it names none. The pod has been read from `pod_manifest`.

    Raises:
        UnreadableManifestError: a claim has an invalid value or another namespace, or two have one name.
    """
    claims: dict[str, Claim] = {}
    default = _default(classes)
    for manifest in (*manifests, *_ephemeral(pod_manifest, pod.metadata.name)):
        claim = _read(manifest, namespace=pod.metadata.namespace)
        if claim.spec.storage_class_name is None and not claim.storage_class:
            claim.spec.storage_class_name = default
        if claim.metadata.name in claims:
            raise UnreadableManifestError(f"PersistentVolumeClaim {claim.metadata.name} occurs twice; name each once")
        claims[claim.metadata.name] = claim
    return list(claims.values())


def _default(classes: Iterable[StorageClass]) -> str | None:
    """Return the default class: the newest of those that are marked, then the first by name (storage/util.go)."""
    defaults = sorted((each.metadata for each in classes if each.is_default), key=lambda metadata: metadata.name)
    newest = max(defaults, key=lambda metadata: metadata.creation_timestamp, default=None)
    return newest.name if newest is not None else None


def _ephemeral(pod_manifest: dict[str, Any], pod: str) -> Iterator[dict[str, Any]]:
    """Return the manifests of the claims of generic ephemeral volumes (controller/volume/ephemeral/controller.go)."""
    spec = pod_manifest.get("spec")
    volumes = spec.get("volumes") if isinstance(spec, dict) else None
    for volume in volumes if isinstance(volumes, list) else ():
        source = volume.get("ephemeral") if isinstance(volume, dict) else None
        template = source.get("volumeClaimTemplate") if isinstance(source, dict) else None
        if isinstance(template, dict):
            yield {"metadata": {"name": f"{pod}-{volume.get('name')}"}, "spec": template.get("spec")}


def _read(manifest: dict[str, Any], *, namespace: str) -> Claim:
    try:
        claim = msgspec.convert(without_nulls(manifest), Claim)
    except msgspec.ValidationError as error:
        raise UnreadableManifestError(f"a PersistentVolumeClaim cannot be read: {error}") from None
    metadata, spec = claim.metadata, claim.spec
    if not metadata.name:
        raise UnreadableManifestError("a PersistentVolumeClaim has no metadata.name")
    label = f"PersistentVolumeClaim {metadata.name}"
    metadata.namespace = metadata.namespace or namespace
    if metadata.namespace != namespace:
        raise UnreadableManifestError(
            f"{label} has namespace {metadata.namespace!r}, but the pod has {namespace!r}: a pod can mount only claims"
            " of its own namespace"
        )
    if not spec.access_modes or not spec.access_modes <= set(_ACCESS_MODES):
        held = ", ".join(sorted(spec.access_modes)) or "nothing"
        raise UnreadableManifestError(
            f"{label}: spec.accessModes holds {held}; write one or more of {', '.join(_ACCESS_MODES)}"
        )
    if spec.volume_mode not in _VOLUME_MODES:
        raise UnreadableManifestError(
            f"{label}: spec.volumeMode holds {spec.volume_mode!r}; write one of {', '.join(_VOLUME_MODES)}"
        )
    _check_amount(claim, label)
    if spec.is_oversized:
        raise UnreadableManifestError(f"{label}: spec.selector {OVERSIZED}")
    kept = {key: value for key, value in metadata.annotations.items() if key not in (BIND_COMPLETED, SELECTED_NODE)}
    metadata.uid, metadata.resource_version, metadata.deletion_timestamp = "", "", None
    metadata.annotations, metadata.owner_references, claim.status = kept, (), ClaimStatus()
    return claim


def _check_amount(claim: Claim, label: str) -> None:
    amount = claim.spec.resources.requests.storage
    field = f"{label}: spec.resources.requests.storage"
    try:
        is_positive = quantity.parse(amount) > 0
    except AllocationError as error:
        raise UnreadableManifestError(f"{field}: {error}") from None
    if not is_positive:
        raise UnreadableManifestError(f"{field} holds {amount!r}; write an amount above 0, such as 10Gi")
