"""The pods of a Job (job_controller.go and indexed_job_utils.go; labels: strategy.go, generateSelector)."""

from typing import Any, Final

from cli.workloads.pod import generated, member, of_template

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def is_indexed(job: dict[str, Any]) -> bool:
    """Whether each pod has an index of its own."""
    return member(job, "spec").get("completionMode") == "Indexed"


def pod(job: dict[str, Any], template: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the pod with a number, which is the index of an indexed Job."""
    metadata = member(job, "metadata")
    name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
    labels = {
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
    }
    if not is_indexed(job):
        return of_template(template, job, name=generated(f"{name}-", number), labels=labels)
    index = {_INDEX: str(number)}
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
    if any(isinstance(each, dict) and each.get("name") == _VARIABLE for each in env):
        return
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{_INDEX}']"}}
    container["env"] = [*env, {"name": _VARIABLE, "valueFrom": source}]
