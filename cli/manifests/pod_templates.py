"""Finds the pods and pod templates of a manifest."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cli.manifests.manifest import objects_in

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
    """A pod, or a template from which a controller makes pods.

    Attributes:
        owner: the kind and the name of the object, for messages.
        pod: the part of the document with `metadata` and `spec`; not a copy.
        document: the object.
        namespace: the object's namespace; empty if the manifest names none.
    """

    owner: str
    pod: dict[str, Any]
    document: dict[str, Any]
    namespace: str = ""


def of(document: object) -> Iterator[Template]:
    """Return the pods and templates of a document, including those inside lists."""
    for each in objects_in(document):
        kind = str(each.get("kind"))
        group, _, _ = str(each.get("apiVersion")).rpartition("/")
        path = _TEMPLATES.get((group, kind))
        if path is None:
            continue
        part: Any = each
        for step in path:
            part = part.get(step) if isinstance(part, dict) else None
        if isinstance(part, dict):
            yield Template(f"{kind} {_name(each)}", part, each, _namespace(each))


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "without name"
    return str(metadata.get("name") or metadata.get("generateName") or "without name")


def _namespace(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
