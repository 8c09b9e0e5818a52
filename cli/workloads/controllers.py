"""The pods that controllers of Kubernetes make: one per node, with an index, or with claims of their own.

The sources are, for a DaemonSet, daemon_controller.go (podsShouldBeOnNode) and util.go
(AddOrUpdateDaemonPodTolerations); for a Job, job_controller.go, indexed_job_utils.go and for its labels strategy.go
(generateSelector); for a StatefulSet, stateful_set_utils.go (newStatefulSetPod, updateIdentity, updateStorage).
"""

import copy
import uuid
from collections.abc import Iterator
from typing import Any, Final

from cli.workloads.pod import generated, member, of_template, template_hash

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_WITHOUT_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_REVISION: Final = "controller-revision-hash"


def pod_of_daemon_set(document: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that is not tied to a node yet, for the decision which nodes have one."""
    metadata = member(document, "metadata")
    generation = metadata.get("generation", 1)
    labels = {"controller-revision-hash": template_hash(template), "pod-template-generation": str(generation)}
    manifest = of_template(template, document, name=generated(f"{metadata.get('name', '')}-", 0), labels=labels)
    spec = manifest["spec"]
    if isinstance(spec, dict):
        tolerated = (*_TOLERATED, *((_WITHOUT_NETWORK,) if spec.get("hostNetwork") else ()))
        tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in tolerated]
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    return manifest


def pod_on_node(document: dict[str, Any], template: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the pod of a node, tied to it by a node affinity that replaces the template's."""
    manifest = pod_of_daemon_set(document, template)
    manifest["metadata"]["name"] = f"{member(document, 'metadata').get('name', '')}-{node}"
    spec = manifest["spec"]
    if isinstance(spec, dict):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity = member(spec, "affinity")
        nodes = {**member(affinity, "nodeAffinity"), _REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        spec["affinity"] = {**affinity, "nodeAffinity": nodes}
    return manifest


def is_indexed(job: dict[str, Any]) -> bool:
    """Whether each pod has an index of its own."""
    return member(job, "spec").get("completionMode") == "Indexed"


def pod_of_job(job: dict[str, Any], template: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the pod with a number, which is the index of an indexed Job."""
    metadata = member(job, "metadata")
    name = str(metadata.get("name", ""))
    # A Job that does not exist yet has no UID. Its pods may be a gang by this label, apart from those of another Job.
    uid = str(metadata.get("uid") or uuid.uuid5(uuid.NAMESPACE_OID, f"{metadata.get('namespace', '')}/{name}"))
    labels = {
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
    }
    if not is_indexed(job):
        return of_template(template, job, name=generated(f"{name}-", number), labels=labels)
    index = {_COMPLETION_INDEX: str(number)}
    pod_name = generated(f"{name}-{number}-", number)
    manifest = of_template(template, job, name=pod_name, labels=labels | index, annotations=index)
    spec = manifest["spec"]
    if isinstance(spec, dict):
        spec["hostname"] = f"{name}-{number}"
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            if isinstance(container, dict):
                _add_index_variable(container)
    return manifest


def _add_index_variable(container: dict[str, Any]) -> None:
    env = container.get("env") or []
    if any(isinstance(each, dict) and each.get("name") == _INDEX_VARIABLE for each in env):
        return
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{_COMPLETION_INDEX}']"}}
    container["env"] = [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]


def pod_of_stateful_set(document: dict[str, Any], template: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the pod with a number; its name has the ordinal, and it has a volume for each of its claims."""
    spec = member(document, "spec")
    ordinal = _ordinal(spec, number)
    name = str(member(document, "metadata").get("name", ""))
    pod_name = f"{name}-{ordinal}"
    labels = {_POD_NAME: pod_name, _POD_INDEX: str(ordinal), _REVISION: f"{name}-{template_hash(template)}"}
    manifest = of_template(template, document, name=pod_name, labels=labels)
    if isinstance(manifest["spec"], dict):
        manifest["spec"]["hostname"] = pod_name
        if spec.get("serviceName"):
            manifest["spec"]["subdomain"] = spec["serviceName"]
        _mount_claims(manifest["spec"], [_template_name(each) for each in _templates(spec)], pod_name)
    return manifest


def claims_of_stateful_set(document: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Return the claims that are created with the pod with a number, one for each of `volumeClaimTemplates`."""
    metadata, spec = member(document, "metadata"), member(document, "spec")
    pod_name = f"{metadata.get('name', '')}-{_ordinal(spec, number)}"
    for template in _templates(spec):
        own = member(template, "metadata")
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": f"{_template_name(template)}-{pod_name}",
                **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
                "labels": {**member(own, "labels"), **member(member(spec, "selector"), "matchLabels")},
                "annotations": dict(member(own, "annotations")),
            },
            "spec": copy.deepcopy(template.get("spec")),
        }


def _ordinal(spec: dict[str, Any], number: int) -> int:
    start = member(spec, "ordinals").get("start")
    return number + (start if isinstance(start, int) else 0)


def _templates(spec: dict[str, Any]) -> list[dict[str, Any]]:
    templates = spec.get("volumeClaimTemplates")
    return [each for each in templates if isinstance(each, dict)] if isinstance(templates, list) else []


def _template_name(template: dict[str, Any]) -> str:
    return str(member(template, "metadata").get("name", ""))


def _mount_claims(pod_spec: dict[str, Any], names: list[str], pod_name: str) -> None:
    """Add the pod's claims as volumes, in place of template volumes with the same name."""
    if not names:
        return
    volumes = pod_spec.get("volumes") or []
    kept = [each for each in volumes if not (isinstance(each, dict) and each.get("name") in names)]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names]
    pod_spec["volumes"] = [*claimed, *kept]
