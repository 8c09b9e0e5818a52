"""Expands an object of a manifest to a workload with its pods."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from cli.manifests import pod_templates
from cli.manifests.pod_templates import Template
from cli.workloads import controllers
from cli.workloads.pod import generated, member, of_template, template_hash
from cli.workloads.workload import UnreadableWorkloadError, Workload

_CONTROLLER: Final = "system:serviceaccount:kube-system:{}-controller"
_SUSPENDED: Final = "it is suspended and creates no pods until spec.suspend is false"


def of(document: object) -> Iterator[Workload]:
    """Return the workloads of a document, including those inside lists.

    Raises:
        UnreadableWorkloadError: a field with a number of pods holds something else.
    """
    for template in pod_templates.of(document):
        yield _workload(template)


def _workload(template: Template) -> Workload:
    document, pod = template.document, template.pod
    match document["kind"]:
        case "Pod":
            return Workload(template.owner, 1, lambda _: _bare(pod, template))
        case "PodTemplate":
            return Workload(template.owner, 1, lambda _: of_template(pod, document, name=_name(document)))
        case "StatefulSet":
            ordered = member(document, "spec").get("podManagementPolicy") != "Parallel"
            return Workload(
                template.owner,
                _count(template, "replicas"),
                partial(controllers.pod_of_stateful_set, document, pod),
                user=_CONTROLLER.format("statefulset"),
                is_ordered=ordered,
                make_claims=partial(controllers.claims_of_stateful_set, document),
            )
        case "DaemonSet":
            return Workload(
                template.owner,
                1,
                lambda _: controllers.pod_of_daemon_set(document, pod),
                user=_CONTROLLER.format("daemon-set"),
                make_on=partial(controllers.pod_on_node, document, pod),
            )
        case "Job" | "CronJob":
            return _job(template)
        case kind:
            return _replicas(template, kind)


def _replicas(template: Template, kind: str) -> Workload:
    """Return the workload of a ReplicaSet, of a Deployment, which has one, or of a ReplicationController."""
    document, pod = template.document, template.pod
    base, labels = f"{_name(document)}-", dict[str, str]()
    if kind == "Deployment":
        labels["pod-template-hash"] = template_hash(pod)
        base += f"{labels['pod-template-hash']}-"
    return Workload(
        template.owner,
        _count(template, "replicas"),
        lambda number: of_template(pod, document, name=generated(base, number), labels=labels),
        user=_CONTROLLER.format("replication" if kind == "ReplicationController" else "replicaset"),
    )


def _job(template: Template) -> Workload:
    document = template.document
    manifest, spec = document, member(document, "spec")
    if document["kind"] == "CronJob":
        job_template = member(spec, "jobTemplate")
        metadata = {**member(job_template, "metadata"), "name": f"{_name(document)}-0"}
        if template.namespace:
            metadata["namespace"] = template.namespace
        manifest = {**job_template, "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    job_spec = member(manifest, "spec")
    total = _number(template, job_spec, "parallelism")
    if job_spec.get("completions") is not None:
        total = min(total, _number(template, job_spec, "completions"))
    is_suspended = bool(spec.get("suspend") or job_spec.get("suspend"))
    return Workload(
        template.owner,
        total,
        partial(controllers.pod_of_job, manifest, template.pod),
        user=_CONTROLLER.format("job"),
        note=_SUSPENDED if is_suspended else "",
    )


def _bare(pod: dict[str, Any], template: Template) -> dict[str, Any]:
    """Return a pod as it is written, with a name if the API server would generate one."""
    metadata = pod.get("metadata") or {}
    if not isinstance(metadata, dict):
        return pod
    return {**pod, "metadata": {**metadata, "name": metadata.get("name") or template.owner.partition(" ")[2]}}


def _name(document: dict[str, Any]) -> str:
    return str(member(document, "metadata").get("name", ""))


def _count(template: Template, field: str) -> int:
    return _number(template, member(template.document, "spec"), field)


def _number(template: Template, spec: dict[str, Any], field: str) -> int:
    """Return the number of pods in a field, or 1 if the field is not set."""
    value = spec.get(field)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UnreadableWorkloadError(f"{template.owner}: {field} holds {value!r}; write a whole number of 0 or more")
    return value
