"""The PersistentVolumeClaims that are created together with pods."""

from collections.abc import Iterable, Iterator
from typing import Any

from cli.workloads.pod import member


def claims_in(document: object) -> Iterator[dict[str, Any]]:
    """Return the PersistentVolumeClaims of a document, including those inside lists."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from claims_in(item)
    elif (document.get("apiVersion"), document.get("kind")) == ("v1", "PersistentVolumeClaim"):
        yield document


def mounted(pod: dict[str, Any], claims: Iterable[dict[str, Any]], *, namespace: str) -> tuple[dict[str, Any], ...]:
    """Return those of `claims` that `pod` mounts, the first of each name.

    `namespace` is that of manifests that name none.
    """
    volumes = member(pod, "spec").get("volumes")
    names = {
        member(volume, "persistentVolumeClaim").get("claimName")
        for volume in (volumes if isinstance(volumes, list) else ())
    }
    own = member(pod, "metadata").get("namespace") or namespace
    by_name: dict[str, dict[str, Any]] = {}
    for claim in claims:
        metadata = member(claim, "metadata")
        if metadata.get("name") in names and (metadata.get("namespace") or namespace) == own:
            by_name.setdefault(str(metadata["name"]), claim)
    return tuple(by_name.values())
