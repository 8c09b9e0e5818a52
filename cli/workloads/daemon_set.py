"""The pods of a DaemonSet (daemon_controller.go: podsShouldBeOnNode; util.go: AddOrUpdateDaemonPodTolerations)."""

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


def pod(document: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
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


def pod_on(document: dict[str, Any], template: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the pod of a node, tied to it by a node affinity that replaces the template's."""
    manifest = pod(document, template)
    manifest["metadata"]["name"] = f"{member(document, 'metadata').get('name', '')}-{node}"
    spec = manifest["spec"]
    if isinstance(spec, dict):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity = member(spec, "affinity")
        nodes = {**member(affinity, "nodeAffinity"), _REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        spec["affinity"] = {**affinity, "nodeAffinity": nodes}
    return manifest
