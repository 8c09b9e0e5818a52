"""A pod as somebody writes it, read as the API server would have it once it was created."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import yaml

from allocation.errors import AllocationError
from cluster.manifest import UnreadableManifestError, without_nulls
from scheduler import resources
from scheduler.objects import Pod, PodStatus
from scheduler.state import State

LARGEST_MANIFEST = 256 * 1024
"""Bytes. YAML takes its time, and the largest pods that people write have a tenth of this."""


class UnknownSchedulerError(Exception):
    """The pod is for another scheduler."""


class Admit(Protocol):
    """Admission, which is a room of its own."""

    def __call__(
        self,
        manifest: dict[str, Any],
        *,
        namespace: str,
        labels: Mapping[str, str] | None,
        quotas: Mapping[str, Mapping[str, str]],
    ) -> Sequence[str]:
        """Leave a pod as admission would, and answer its warnings.

        `labels` are those of its namespace, None where that does not exist, `quotas` the `spec.hard` of its quotas.

        Raises:
            UnreadableManifestError: it is no pod.
            NotAdmittedError: it would be refused.
        """


class Submission(msgspec.Struct, frozen=True):
    """A pod that could be created now, and what its creator would be told."""

    pod: Pod
    warnings: tuple[str, ...]


def parse(body: bytes) -> dict[str, Any]:
    """Read one Pod in YAML or JSON.

    Raises:
        UnreadableManifestError: it is none.
    """
    try:
        content = msgspec.json.decode(body) if body.lstrip()[:1] == b"{" else _loaded(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = _loaded(body)  # a flow mapping of YAML begins alike
    except RecursionError:
        raise UnreadableManifestError("the body is nested too deeply") from None
    if not isinstance(content, dict):
        raise UnreadableManifestError("the body is no Kubernetes object; send one Pod in YAML or JSON")
    version, kind = content.get("apiVersion"), content.get("kind")
    if (version, kind) != ("v1", "Pod"):
        raise UnreadableManifestError(f"the body is a {kind} of {version}; send one Pod of v1")
    return content


def submit(state: State, manifest: dict[str, Any], admit: Admit, *, namespace: str = "default") -> Submission:
    """Answer what a manifest would be once it was created; `namespace` where it names none.

    Raises:
        UnreadableManifestError: a field holds what it may not hold.
        NotAdmittedError: admission would refuse it.
        UnknownSchedulerError: it would be another scheduler's.
    """
    sent: Any = without_nulls(manifest)
    metadata = sent.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not isinstance(metadata.setdefault("namespace", namespace), str):
        raise UnreadableManifestError("metadata is no object with the name of a namespace")
    namespace = metadata["namespace"]
    labels = state.fleet.namespaces.get(namespace)
    warnings = [*admit(sent, namespace=namespace, labels=labels, quotas=state.quotas.hards(namespace))]
    try:
        pod = msgspec.convert(sent, Pod)
    except msgspec.ValidationError as error:
        raise UnreadableManifestError(str(error)) from None
    if not state.is_ours(pod):
        raise UnknownSchedulerError(pod.spec.scheduler_name or "default-scheduler")
    try:
        resources.requests(pod, ours=())
    except AllocationError as error:
        raise UnreadableManifestError(f"an amount of the pod cannot be read: {error}") from None
    if labels is None:
        warnings.append(f"namespace {namespace} does not exist; taken as opted in and without quotas")
    if pod.spec.scheduling_gates:
        warnings.append("spec.schedulingGates: the pod would wait until they are removed; told is what comes then")
    pod.metadata.uid, pod.status = "", PodStatus()
    pod.metadata.name = pod.metadata.name or str(metadata.get("generateName", ""))
    return Submission(pod, tuple(warnings))


class _Loader(yaml.SafeLoader):
    """Without aliases, by which a small text means a huge object; with dates as the text that they are."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias; write each part out")
        return super().compose_node(parent, index)


def _loaded(body: bytes) -> Any:
    try:
        return _as_json(yaml.load(body, Loader=_Loader))  # noqa: S506 -- it is a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableManifestError(f"the body is neither YAML nor JSON: {error}") from None
    except RecursionError:
        raise UnreadableManifestError("the body is nested too deeply") from None


def _as_json(content: Any) -> Any:
    """Answer what of YAML is JSON, too: no dates, no bytes, no sets, no half of a character, no infinite number."""
    try:
        return msgspec.json.decode(json.dumps(content, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableManifestError(f"the body holds what JSON has no word for: {error}") from None
