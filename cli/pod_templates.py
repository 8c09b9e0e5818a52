"""Where the pods of a manifest are."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

_TEMPLATES: Final = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}


class Template(msgspec.Struct, frozen=True):
    """A pod, or what pods are made from.

    Attributes:
        owner: kind and name of the object, for messages.
        pod: with `metadata` and `spec`; a part of the document, not a copy.
        namespace: of the object; empty where it names none.
    """

    owner: str
    pod: dict[str, Any]
    namespace: str = ""


def of(document: object) -> Iterator[Template]:
    """Answer the pods and templates of a document, through lists; what is no object has none."""
    if not isinstance(document, dict):
        return
    kind = str(document.get("kind"))
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for item in items:
            yield from of(item)
        return
    group, _, _ = str(document.get("apiVersion")).rpartition("/")
    path = _TEMPLATES.get((group, kind))
    if path is None:
        return
    found: Any = document
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict):
        yield Template(f"{kind} {_name(document)}", found, _namespace(document))


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "without name"
    return str(metadata.get("name") or metadata.get("generateName") or "without name")


def _namespace(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
