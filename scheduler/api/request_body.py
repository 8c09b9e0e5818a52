"""Reads the body of a simulation: one Pod, or a List with a Pod and the claims to create with it."""

import json
from collections.abc import Collection
from typing import Any, Final

import msgspec

from allocation import limits
from cluster import yaml_documents
from cluster.manifest import UnreadableManifestError
from cluster.resource import GPU_CLAIMS
from cluster.yaml_documents import UnreadableDocumentError

LARGEST_BODY: Final = 256 * 1024
"""Bytes. Parsing YAML is slow, and the largest pods that people write have a tenth of this size."""

YAML: Final = "application/yaml"
LARGEST_YAML: Final = 16 * 1024
"""Bytes of YAML from users with rights in one namespace: at most 0.15 s to parse."""

_POD: Final = ("v1", "Pod")
_VOLUME_CLAIM: Final = ("v1", "PersistentVolumeClaim")
_GPU_CLAIM: Final = (GPU_CLAIMS.api_version, GPU_CLAIMS.kind)
_WANTED: Final = "send one Pod of v1, or a List of v1 with one Pod, its PersistentVolumeClaims and its GpuClaim"


class Manifests(msgspec.Struct, frozen=True):
    """The manifest of a pod, and those of the claims that are created together with it.

    Attributes:
        pod: the pod.
        claims: PersistentVolumeClaims.
        gpu_claim: the GpuClaim that the pod names; None if it names none, or one that exists.
    """

    pod: dict[str, Any]
    claims: tuple[dict[str, Any], ...] = ()
    gpu_claim: dict[str, Any] | None = None


def parse(body: bytes) -> Manifests:
    """Read a body in YAML or JSON.

    Raises:
        UnreadableManifestError: the body is something else.
    """
    try:
        content = msgspec.json.decode(body) if body.lstrip()[:1] == b"{" else _load_yaml(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = _load_yaml(body)  # a flow mapping of YAML begins with a brace, too
    except RecursionError:
        raise UnreadableManifestError("the body is nested too deeply") from None
    return manifests_of(content)


def parse_json(body: bytes) -> Manifests:
    """Read a body in JSON.

    Raises:
        UnreadableManifestError: the body is something else.
    """
    try:
        return manifests_of(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableManifestError(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise UnreadableManifestError("the body is nested too deeply") from None


def manifests_of(content: object) -> Manifests:
    """Return the manifests in `content`.

    Raises:
        UnreadableManifestError: it is neither a Pod, nor a List with one Pod, at most 64 PersistentVolumeClaims and at
            most one GpuClaim.
    """
    if not isinstance(content, dict):
        raise UnreadableManifestError(f"the body is not a Kubernetes object; {_WANTED}")
    if _kind(content) != ("v1", "List"):
        return Manifests(_require(content, (_POD,), where="the body"))
    items = content.get("items")
    if not isinstance(items, list):
        raise UnreadableManifestError(f"the items of the List are not a list; {_WANTED}")
    pods = [each for each in items if _kind(each) == _POD]
    if len(pods) != 1:
        raise UnreadableManifestError(f"the List has {len(pods)} Pods of v1; {_WANTED}")
    others = [
        _require(each, (_VOLUME_CLAIM, _GPU_CLAIM), where=f"items[{number}] of the List")
        for number, each in enumerate(items)
        if each is not pods[0]
    ]
    claims = [each for each in others if _kind(each) == _VOLUME_CLAIM]
    gpu_claims = [each for each in others if _kind(each) == _GPU_CLAIM]
    if len(claims) > limits.VOLUMES:
        raise UnreadableManifestError(
            f"the List has {len(claims)} PersistentVolumeClaims; {limits.VOLUMES} is the limit, as for spec.volumes"
        )
    if len(gpu_claims) > 1:
        raise UnreadableManifestError(f"the List has {len(gpu_claims)} GpuClaims, and a pod names one; {_WANTED}")
    return Manifests(pods[0], tuple(claims), gpu_claims[0] if gpu_claims else None)


def encode(manifests: Manifests) -> bytes:
    """Return the body that `parse_json` reads; a pod without claims is sent alone."""
    gpu_claims = () if manifests.gpu_claim is None else (manifests.gpu_claim,)
    if not manifests.claims and not gpu_claims:
        return msgspec.json.encode(manifests.pod)
    items = [manifests.pod, *manifests.claims, *gpu_claims]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


class _Loader(yaml_documents.Loader):
    most_copies = 0  # people do not write aliases in a pod, and with aliases a small body becomes a large object


def _kind(content: object) -> tuple[Any, Any]:
    return (content.get("apiVersion"), content.get("kind")) if isinstance(content, dict) else (None, None)


def _require(content: object, kinds: Collection[tuple[str, str]], *, where: str) -> dict[str, Any]:
    version, found = _kind(content)
    if not isinstance(content, dict) or (version, found) not in kinds:
        raise UnreadableManifestError(f"{where} has kind {found} and apiVersion {version}; {_WANTED}")
    return content


def _load_yaml(body: bytes) -> Any:
    try:
        return _as_json(yaml_documents.load(body, loader=_Loader))
    except UnreadableDocumentError as error:
        raise UnreadableManifestError(f"the body is neither YAML nor JSON: {error}") from None


def _as_json(content: Any) -> Any:
    """Return `content` if JSON can represent it: no dates, bytes, sets, lone surrogates or infinite numbers."""
    try:
        return msgspec.json.decode(json.dumps(content, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableManifestError(f"the body has a value that JSON cannot represent: {error}") from None
