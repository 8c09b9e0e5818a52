"""Reads the manifest of a pod that does not exist yet, with the changes that admission would make."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from allocation.errors import AllocationError
from cluster import yaml_documents
from cluster.manifest import UnreadableManifestError, without_nulls
from cluster.yaml_documents import UnreadableDocumentError
from scheduler.filters import resources
from scheduler.objects import Pod, PodStatus
from scheduler.state.cluster_state import ClusterState

LARGEST_MANIFEST = 256 * 1024
"""Bytes. Parsing YAML is slow, and the largest pods that people write have a tenth of this size."""


class UnknownSchedulerError(Exception):
    """Another scheduler would place the pod; the message is its name."""


class Admit(Protocol):
    """Admission, as a function: this package must not import the webhook."""

    def __call__(
        self,
        manifest: dict[str, Any],
        *,
        namespace: str,
        labels: Mapping[str, str] | None,
        quotas: Mapping[str, Mapping[str, str]],
    ) -> Sequence[str]:
        """Change `manifest` as admission would, and return the warnings.

        `labels` are those of the namespace, None if it does not exist; `quotas` are the `spec.hard` of its
        ResourceQuotas, by name.

        Raises:
            UnreadableManifestError: the manifest is not a Pod.
            NotAdmittedError: admission would refuse the pod.
        """


class SubmittedPod(msgspec.Struct, frozen=True):
    """A pod that could be created now, and the warnings that its creator would get."""

    pod: Pod
    warnings: tuple[str, ...]


def parse(body: bytes) -> dict[str, Any]:
    """Read one Pod in YAML or JSON.

    Raises:
        UnreadableManifestError: the body is not a Pod.
    """
    try:
        content = msgspec.json.decode(body) if body.lstrip()[:1] == b"{" else _load_yaml(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = _load_yaml(body)  # a flow mapping of YAML begins with a brace, too
    except RecursionError:
        raise UnreadableManifestError("the body is nested too deeply") from None
    return pod_of(content)


def pod_of(content: object) -> dict[str, Any]:
    """Return `content`, which must be the manifest of a Pod.

    Raises:
        UnreadableManifestError: it is something else.
    """
    if not isinstance(content, dict):
        raise UnreadableManifestError("the body is not a Kubernetes object; send one Pod")
    version, kind = content.get("apiVersion"), content.get("kind")
    if (version, kind) != ("v1", "Pod"):
        raise UnreadableManifestError(f"the body has kind {kind} and apiVersion {version}; send one Pod of v1")
    return content


def other_scheduler_message(scheduler: str, namespace: str) -> str:
    """Return the text for a pod that another scheduler would place, with the remedy."""
    return (
        f"scheduler {scheduler} would place the pod: it asks for no GPU, names that scheduler, or is not opted in;"
        f" 'kubectl label namespace {namespace} gpu.scheduling/injection=enabled' opts in all pods of the namespace"
    )


def read_pod(
    state: ClusterState, manifest: dict[str, Any], admit: Admit, *, namespace: str = "default"
) -> SubmittedPod:
    """Return the pod that would exist if `manifest` was created, in `namespace` unless it names one.

    Raises:
        UnreadableManifestError: a field has an invalid value.
        NotAdmittedError: admission would refuse it.
        UnknownSchedulerError: another scheduler would place the pod.
    """
    admitted: Any = without_nulls(manifest)
    metadata = admitted.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not isinstance(metadata.setdefault("namespace", namespace), str):
        raise UnreadableManifestError("metadata must be an object, and metadata.namespace a string")
    namespace = metadata["namespace"]
    labels = state.node_cache.namespaces.get(namespace)
    warnings = [*admit(admitted, namespace=namespace, labels=labels, quotas=state.quotas.hards(namespace))]
    try:
        pod = msgspec.convert(admitted, Pod)
    except msgspec.ValidationError as error:
        raise UnreadableManifestError(str(error)) from None
    if not state.is_ours(pod):
        raise UnknownSchedulerError(pod.spec.scheduler_name or "default-scheduler")
    try:
        resources.requests(pod, ours=())
    except AllocationError as error:
        raise UnreadableManifestError(f"a quantity of the pod cannot be read: {error}") from None
    if labels is None:
        warnings.append(
            f"namespace {namespace} does not exist; the result assumes that it is opted in and has no quotas"
        )
    if pod.spec.scheduling_gates:
        warnings.append(
            "spec.schedulingGates: the pod stays gated until they are removed; the result shows what would happen"
            " afterwards"
        )
    pod.metadata.uid, pod.status = "", PodStatus()
    pod.metadata.name = pod.metadata.name or str(metadata.get("generateName", ""))
    return SubmittedPod(pod, tuple(warnings))


class _Loader(yaml_documents.Loader):
    most_copies = 0  # people do not write aliases in a pod, and with aliases a small body becomes a large object


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
