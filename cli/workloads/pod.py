"""Makes a pod from a template, as every controller of Kubernetes does (GetPodFromTemplate)."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated suffixes in Kubernetes. Vowels are left out, so that suffixes do not form words."""
_SUFFIX: Final = 5
_LONGEST_GENERATED: Final = 63 - _SUFFIX
_HASH: Final = 10


def member(content: object, key: str) -> dict[str, Any]:
    """Return the object under `key` of an object, or an empty object."""
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def generated(base: str, number: int) -> str:
    """Return a name like a generated one, with the pod's number in place of the random suffix."""
    digits = ""
    for _ in range(_SUFFIX):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return base[:_LONGEST_GENERATED] + digits


def template_hash(template: Mapping[str, Any]) -> str:
    """Return a hash that identifies the template in labels; Kubernetes computes it by another function."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True, default=str).encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH])


def of_template(
    template: Mapping[str, Any],
    owner: Mapping[str, Any],
    *,
    name: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the pod `name` of `owner`, with only the labels and annotations of the template's metadata."""
    metadata, owned = member(template, "metadata"), member(owner, "metadata")
    reference = {
        "apiVersion": str(owner.get("apiVersion", "")),
        "kind": str(owner.get("kind", "")),
        "name": str(owned.get("name", "")),
        "uid": str(owned.get("uid", "")),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            **({"namespace": owned["namespace"]} if owned.get("namespace") else {}),
            "labels": {**member(metadata, "labels"), **(labels or {})},
            "annotations": {**member(metadata, "annotations"), **(annotations or {})},
            "ownerReferences": [reference],
        },
        "spec": copy.deepcopy(template.get("spec")),
    }
