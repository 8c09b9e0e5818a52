"""The pods of a StatefulSet (stateful_set_utils.go: newStatefulSetPod, updateIdentity, updateStorage)."""

from typing import Any, Final

from cli.workloads.pod import member, of_template, template_hash

_NAME: Final = "statefulset.kubernetes.io/pod-name"
_INDEX: Final = "apps.kubernetes.io/pod-index"
_REVISION: Final = "controller-revision-hash"


def pod(document: dict[str, Any], template: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the pod with a number; its name has the ordinal, and it has a volume for each of its claims."""
    name = str(member(document, "metadata").get("name", ""))
    spec = member(document, "spec")
    start = member(spec, "ordinals").get("start")
    ordinal = number + (start if isinstance(start, int) else 0)
    pod_name = f"{name}-{ordinal}"
    labels = {_NAME: pod_name, _INDEX: str(ordinal), _REVISION: f"{name}-{template_hash(template)}"}
    manifest = of_template(template, document, name=pod_name, labels=labels)
    if isinstance(manifest["spec"], dict):
        manifest["spec"]["hostname"] = pod_name
        if spec.get("serviceName"):
            manifest["spec"]["subdomain"] = spec["serviceName"]
        _mount_claims(manifest["spec"], spec.get("volumeClaimTemplates"), pod_name)
    return manifest


def _mount_claims(pod_spec: dict[str, Any], claims: object, pod_name: str) -> None:
    """Add the pod's claims as volumes, in place of template volumes with the same name."""
    names = [str(member(claim, "metadata").get("name", "")) for claim in claims] if isinstance(claims, list) else []
    if not names:
        return
    volumes = pod_spec.get("volumes") or []
    kept = [each for each in volumes if not (isinstance(each, dict) and each.get("name") in names)]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names]
    pod_spec["volumes"] = [*claimed, *kept]
