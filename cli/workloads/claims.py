"""The claims that are created together with pods: PersistentVolumeClaims and GpuClaims."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from allocation import names
from cli.manifests.manifest import objects_in
from cli.workloads.pod import member
from cluster.resource import GPU_CLAIMS, PERSISTENT_VOLUME_CLAIMS, Resource

_KINDS: Final = (PERSISTENT_VOLUME_CLAIMS, GPU_CLAIMS)


def claims_in(document: object) -> Iterator[dict[str, Any]]:
    """Return the claims of a document, including those inside lists."""
    for each in objects_in(document):
        if any(_is(each, kind) for kind in _KINDS):
            yield each


def mounted(pod: dict[str, Any], claims: Iterable[dict[str, Any]], *, namespace: str) -> tuple[dict[str, Any], ...]:
    """Return the PersistentVolumeClaims among `claims` that `pod` mounts, the first of each name.

    `namespace` is that of manifests that name none.
    """
    volumes = member(pod, "spec").get("volumes")
    mounts = {
        member(volume, "persistentVolumeClaim").get("claimName")
        for volume in (volumes if isinstance(volumes, list) else ())
    }
    by_name: dict[str, dict[str, Any]] = {}
    for claim in _of_kind(pod, claims, PERSISTENT_VOLUME_CLAIMS, namespace=namespace):
        name = member(claim, "metadata").get("name")
        if name in mounts:
            by_name.setdefault(str(name), claim)
    return tuple(by_name.values())


def gpu_claim(pod: dict[str, Any], claims: Iterable[dict[str, Any]], *, namespace: str) -> dict[str, Any] | None:
    """Return the first GpuClaim among `claims` that `pod` names, or None; for `namespace` see `mounted`."""
    named = member(member(pod, "metadata"), "annotations").get(names.CLAIM)
    found = _of_kind(pod, claims, GPU_CLAIMS, namespace=namespace)
    return next((each for each in found if named and member(each, "metadata").get("name") == named), None)


def _of_kind(
    pod: dict[str, Any], claims: Iterable[dict[str, Any]], kind: Resource, *, namespace: str
) -> Iterator[dict[str, Any]]:
    """Return those of `claims` that have this kind and the namespace of `pod`."""
    own = member(pod, "metadata").get("namespace") or namespace
    for claim in claims:
        if _is(claim, kind) and (member(claim, "metadata").get("namespace") or namespace) == own:
            yield claim


def _is(document: dict[str, Any], kind: Resource) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (kind.api_version, kind.kind)
