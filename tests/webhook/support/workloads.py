"""Workloads with pod templates, and the pods that controllers make of them."""

import copy
from typing import Any

GROUPS = {"Job": "batch", "Deployment": "apps", "JobSet": "jobset.x-k8s.io"}
KINDS = tuple(GROUPS)


def workload(kind: str, *pods: dict[str, Any]) -> dict[str, Any]:
    """Return a workload with templates of these pods; only a JobSet has several."""
    templates: list[dict[str, Any]] = [
        {"metadata": {key: value for key, value in pod["metadata"].items() if "ame" not in key}, "spec": pod["spec"]}
        for pod in pods
    ]
    if kind == "JobSet":
        jobs = [{"name": f"j{at}", "template": {"spec": {"template": each}}} for at, each in enumerate(templates)]
        return {"metadata": {"name": "w"}, "spec": {"replicatedJobs": jobs}}
    (template,) = templates
    return {"metadata": {"name": "w"}, "spec": {"replicas": 1, "template": template}}


def template(made: dict[str, Any], at: int = 0) -> dict[str, Any]:
    """Return a template of a workload."""
    job = made["spec"]["replicatedJobs"][at]["template"] if "replicatedJobs" in made["spec"] else made
    found: dict[str, Any] = job["spec"]["template"]
    return found


def made_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a controller makes of a template, with the API server's defaults."""
    return defaulted({**found, "metadata": {"generateName": "w-", **found["metadata"]}})


def defaulted(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the API server's defaults: what it limits, it requests."""
    pod = copy.deepcopy(pod)
    for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        held = each.setdefault("resources", {})
        if held.get("limits"):
            held["requests"] = {**held["limits"], **(held.get("requests") or {})}
    return pod
