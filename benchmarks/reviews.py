"""AdmissionReviews as an API server sends them, including the fields that admission does not read."""

from collections.abc import Iterator
from typing import Any

import msgspec

_ROUTINE = 4096
_UID = "705ab4f5-6393-11e8-b7cc-42010a8{:05x}"


def of_a_template(count: int, *, size: int = _ROUTINE) -> list[bytes]:
    """Return reviews of `count` pods of one Job, which differ in names, indexes and token volumes."""
    return [_review(number, [_container("main", memory="3k", token=number)], size=size) for number in range(count)]


def all_unlike(count: int, *, size: int = _ROUTINE) -> list[bytes]:
    """Return reviews of `count` pods with different requests."""
    return [
        _review(number, [_container(f"c{number}", memory=str(1 + number), token=number)], size=size)
        for number in range(count)
    ]


def large(*, size: int, containers: int) -> bytes:
    """Return the review of one pod with many containers, each with a share of a card."""
    return _review(0, [_container(f"c{number}", memory="3k", token=0) for number in range(containers)], size=size)


def _container(name: str, *, memory: str, token: int) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1", "nvidia.com/gpumem": memory}
    return {
        "name": name,
        "image": "registry.example.com/team/training:2026.11",
        "command": ["python", "-m", "train"],
        "resources": {"limits": limits, "requests": limits},
        "env": [{"name": "EPOCHS", "value": "10"}, {"name": "DATA", "value": "s3://bucket/data"}],
        "volumeMounts": [
            {
                "name": f"kube-api-access-{token:05x}",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _review(number: int, containers: list[dict[str, Any]], *, size: int) -> bytes:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    meta = {
        "generateName": f"train-{number}-",
        "namespace": "team",
        "creationTimestamp": None,
        "labels": {"job-name": "train", "batch.kubernetes.io/job-completion-index": str(number)},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(number), "note": ""},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": _UID.format(0), "controller": True}
        ],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": dict(_fields())}],
    }
    spec = {
        "volumes": [{"name": f"kube-api-access-{number:05x}", "projected": {"defaultMode": 420, "sources": []}}],
        "containers": containers,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    request = {
        "uid": _UID.format(number),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        },
        "object": {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": {}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    short = size - len(msgspec.json.encode(whole))
    if short < 0:
        raise ValueError(f"a review of this pod is {-short} bytes larger than {size}")
    request["object"]["metadata"]["annotations"]["note"] = "x" * short  # type: ignore[index]
    return msgspec.json.encode(whole)


def _fields() -> Iterator[tuple[str, Any]]:
    for name in ("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext"):
        yield f"f:{name}", {}
