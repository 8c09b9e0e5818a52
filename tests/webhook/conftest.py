"""Send a review and apply its response as the API server does."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import pytest

from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from tests.webhook.support.claims import Claims
from webhook.admission import Admission
from webhook.bindings import BindingLookup
from webhook.claims import UncachedClaimError
from webhook.membership import MembershipLookup
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.settings import WebhookSettings

TRUSTED = "system:serviceaccount:tranche-system:tranche-static"


@dataclass(frozen=True)
class Verdict:
    """The response to a review, and the pod after its patch."""

    allowed: bool
    pod: dict[str, Any]
    operations: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    message: str = ""
    code: int = 0
    uid: str = ""
    api_version: str = ""


def _admit(
    pod: Any,
    *,
    username: str = "alice",
    allocation: AllocationSettings | None = None,
    settings: WebhookSettings | None = None,
    api_version: str = "admission.k8s.io/v1",
    operation: str = "CREATE",
    group: str = "",
    kind: str = "Pod",
    subresource: str = "",
    before: Any = None,
    quotas: Mapping[str, Mapping[str, str]] | None = None,
    gpu_quotas: Mapping[str, QuotaSpec] | None = None,
    claims: Claims | None = None,
    bindings: BindingLookup | None = None,
    memberships: MembershipLookup | None = None,
    isolation: str = "",
) -> Verdict:
    admission = Admission(
        allocation=allocation or AllocationSettings(),
        settings=settings or WebhookSettings(),
        metrics=Metrics(),
        quotas=lambda namespace: Quotas(quotas or {}, gpu_quotas or {}) if namespace == "team" else Quotas(),
        claims=claims or Claims({}),
        bindings=bindings,
        memberships=memberships,
        isolation_of=lambda namespace: isolation if namespace == "team" else "",
    )
    review = {
        "apiVersion": api_version,
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": "v1", "kind": kind},
            "name": "",
            "namespace": "team",
            "subResource": subresource,
            "operation": operation,
            "userInfo": {"username": username, "groups": ["system:authenticated"]},
            "object": pod,
            "oldObject": before,
        },
    }
    answer = json.loads(_answer(admission, json.dumps(review).encode()))
    response = answer["response"]
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert ("patchType" in response) == bool(operations)
    return Verdict(
        allowed=response["allowed"],
        pod=jsonpatch.apply_patch(pod, operations) if operations else pod,
        operations=operations,
        warnings=response.get("warnings", []),
        message=response.get("status", {}).get("message", ""),
        code=response.get("status", {}).get("code", 0),
        uid=response["uid"],
        api_version=answer["apiVersion"],
    )


def _answer(admission: Admission, body: bytes) -> bytes:
    try:
        return admission.answer(body)
    except UncachedClaimError as uncached:
        return asyncio.run(admission.answer_after_reading(body, uncached))


@pytest.fixture(scope="session")
def admit() -> Callable[..., Verdict]:
    """Return the function that sends a pod through admission."""
    return _admit


def _pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> dict[str, Any]:
    """Return a pod as the API server sends it, with defaults."""
    spec = {"schedulerName": "default-scheduler", "containers": list(containers), **spec}
    if init:
        spec["initContainers"] = list(init)
    return {"metadata": {"generateName": "job-"}, "spec": spec}


@pytest.fixture(scope="session")
def pod() -> Callable[..., dict[str, Any]]:
    """Return the function that builds a pod from containers."""
    return _pod


def _gpu(name: str = "main", **extra: Any) -> dict[str, Any]:
    """Return a container that requests a slice of a card, with canonical quantities and requests equal to limits."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k", "nvidia.com/gpucores": "30"}
    return {"name": name, "resources": {"limits": limits, "requests": dict(limits)}, **extra}


@pytest.fixture(scope="session")
def gpu() -> Callable[..., dict[str, Any]]:
    """Return the function that builds a container that requests a slice of a card."""
    return _gpu


@pytest.fixture(scope="session")
def reference() -> Callable[[str, str], dict[str, Any]]:
    """Return the function that builds an environment entry that reads an annotation of the scheduler."""

    def make(variable: str, container: str) -> dict[str, Any]:
        key = f"{variable.lower().replace('_', '-')}.gpu.scheduling/{container}"
        path = f"metadata.annotations['{key}']"
        return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}

    return make
