"""Admission: every body gets a response, every rejection has a message, and mutating a mutated pod changes nothing."""

import asyncio
import base64
import json
from typing import Any, cast

import jsonpatch
import msgspec

from allocation.fairness.quota_spec import QuotaSpec
from fuzz.world import ALLOCATION, CLAIMS, WEBHOOK
from webhook.admission import Admission
from webhook.claims import UncachedClaimError
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.review import UnreadableReviewError

_QUOTAS = Quotas(
    {"few": {"limits.nvidia.com/gpu": "4"}},
    msgspec.convert(
        {
            "small": {
                "total": {"limits": {"nvidia.com/gpumem": 60_000}},
                "single": {
                    "limits": {"nvidia.com/gpumem": 30_000, "nvidia.com/gpucores": 90},
                    "maxCards": 3,
                    "defaults": {"nvidia.com/gpumem": 2_000, "nvidia.com/gpucores": 10},
                },
            }
        },
        dict[str, QuotaSpec],
    ),
)
_ADMISSION = Admission(
    allocation=ALLOCATION,
    settings=WEBHOOK,
    metrics=Metrics(),
    quotas=lambda namespace: _QUOTAS if namespace == "team" else Quotas(),
    claims=CLAIMS,
    memberships=None,
    bindings=None,
)
_CODES = {400, 403}  # claims can always be read here


def try_bytes(data: bytes) -> None:
    """Send `data` as the body of a review."""
    try:
        answer = _answer(data)
    except UnreadableReviewError as error:
        assert "AdmissionReview" in str(error)
        return
    response = answer["response"]
    try:
        sent = json.loads(data.decode())
    except UnicodeDecodeError:
        return  # in a part that admission does not read
    assert response["uid"] == sent["request"]["uid"]
    assert answer["apiVersion"] == sent["apiVersion"]
    if not response["allowed"]:
        status = response["status"]
        assert status["code"] in _CODES
        assert status["message"]
        assert "patch" not in response
    elif "patch" in response:
        _try_patch(sent, base64.b64decode(response["patch"]))


def _answer(data: bytes) -> dict[str, Any]:
    try:
        answer = _ADMISSION.answer(data)
    except UncachedClaimError as uncached:
        answer = asyncio.run(_ADMISSION.answer_after_reading(data, uncached))
    return cast("dict[str, Any]", json.loads(answer))


def _try_patch(sent: dict[str, Any], patch: bytes) -> None:
    request = sent["request"]
    request["object"] = jsonpatch.apply_patch(request["object"], patch)
    if not _has_own_names(request["object"]):
        return
    try:
        body = json.dumps(sent, allow_nan=False).encode()
    except ValueError:
        return  # infinity or NaN, in a part that admission does not read
    again = _answer(body)["response"]
    assert again["allowed"], again
    assert "patch" not in again, base64.b64decode(again["patch"])


def _has_own_names(pod: dict[str, Any]) -> bool:
    """Return whether container names are unique; the API server rejects other pods right after admission."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    container_names = [container.get("name", "") for kind in kinds for container in pod.get("spec", {}).get(kind, ())]
    return len(set(container_names)) == len(container_names)
