"""The pods that will be created: from templates, or again in place of pods that wait for a node."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from allocation import names
from cli.workloads import expand

_KNOWN_CONTROLLERS: Final = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"}
)
_FINISHED: Final = ("Complete", "Failed")


class PlannedPod(msgspec.Struct, frozen=True):
    """A pod that will be created.

    Attributes:
        source: kind and name of the object from which it will be created.
        namespace: the namespace of the pod.
        pod: `metadata` and `spec`.
        user: the controller that will create it, or empty for a person.
        waits: whether the pod exists already and has no node.
        owned: whether the template of its controller is evaluated as well, so that only its waiting is reported.
    """

    source: str
    namespace: str
    pod: dict[str, Any]
    user: str = ""
    waits: bool = False
    owned: bool = False


def of_workloads(workloads: Iterable[dict[str, Any]]) -> Iterator[PlannedPod]:
    """Return a planned pod per template of the controllers that still create pods and have no known owner."""
    for document in workloads:
        metadata = document.get("metadata") or {}
        if _owner(metadata) in _KNOWN_CONTROLLERS or _is_finished_job(document):
            continue
        namespace, kind = str(metadata.get("namespace", "")), str(document["kind"])
        for workload in expand.of(document):
            source = f"{kind} {namespace}/{metadata.get('name', '')}"
            yield PlannedPod(source, namespace, workload.make(0), workload.user)


def of_pods(pods: Iterable[msgspec.Raw], *, hami: frozenset[str]) -> Iterator[PlannedPod]:
    """Return the pods that wait for a node, as they would be sent if they were created again.

    HAMi's webhook has written one of the scheduler names `hami` into them, and HAMi's scheduler its annotations: both
    are removed.
    """
    for raw in pods:
        pod = json.loads(bytes(raw))
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if spec.get("nodeName") or status.get("phase", "Pending") != "Pending" or metadata.get("deletionTimestamp"):
            continue
        if spec.get("schedulerName") == names.SCHEDULER_NAME:
            continue  # it was already admitted
        if spec.get("schedulerName") in hami:
            spec = {**spec, "schedulerName": ""}
        annotations = metadata.get("annotations") or {}
        kept = {key: value for key, value in annotations.items() if not names.is_output_key(key)}
        namespace = metadata["namespace"]
        yield PlannedPod(
            f"pod {namespace}/{metadata['name']}",
            namespace,
            {"metadata": {**metadata, "annotations": kept}, "spec": spec},
            waits=True,
            owned=_owner(metadata) in _KNOWN_CONTROLLERS,
        )


def _owner(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner.get("kind")) for owner in owners if owner.get("controller")), "")


def _is_finished_job(document: Mapping[str, Any]) -> bool:
    """Whether the object is a finished Job, which creates no more pods."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return document["kind"] == "Job" and any(
        each.get("type") in _FINISHED and each.get("status") == "True" for each in conditions
    )
