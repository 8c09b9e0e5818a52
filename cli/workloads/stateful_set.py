"""The pods and claims of a StatefulSet (stateful_set_utils.go: newStatefulSetPod, updateIdentity, updateStorage)."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from cli.workloads.pod import member, of_template, template_hash

_NAME: Final = "statefulset.kubernetes.io/pod-name"
_INDEX: Final = "apps.kubernetes.io/pod-index"
_REVISION: Final = "controller-revision-hash"


def pod(document: dict[str, Any], template: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the pod with a number; its name has the ordinal, and it has a volume for each of its claims."""
    spec = member(document, "spec")
    ordinal = _ordinal(spec, number)
    name = str(member(document, "metadata").get("name", ""))
    pod_name = f"{name}-{ordinal}"
    labels = {_NAME: pod_name, _INDEX: str(ordinal), _REVISION: f"{name}-{template_hash(template)}"}
    manifest = of_template(template, document, name=pod_name, labels=labels)
    if isinstance(manifest["spec"], dict):
        manifest["spec"]["hostname"] = pod_name
        if spec.get("serviceName"):
            manifest["spec"]["subdomain"] = spec["serviceName"]
        _mount_claims(manifest["spec"], [_template_name(each) for each in _templates(spec)], pod_name)
    return manifest


def claims(document: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
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
