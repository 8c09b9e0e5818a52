"""Responses to reviews of both versions, whether readable or not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from allocation.settings import AllocationSettings
from cluster.logs import Json, Logfmt
from tests.webhook.support.claims import Claims
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.review import UnreadableReviewError
from webhook.settings import WebhookSettings

Make = Callable[..., Any]

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "sent",
    [
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "x"}}}]}},
        {"spec": {"containers": [{"name": "a"}]}},
        {"spec": {"containers": 5}},
        {"metadata": {"annotations": {"a": 1}}, "spec": {}},
        "not a pod",
        None,
    ],
)
def test_every_response_has_the_uid_and_version_of_its_review(admit: Make, version: str, sent: Any) -> None:
    """Mutated, refused, untouched or malformed: the response has the review's uid and version."""
    verdict = admit(sent, api_version=version)
    assert verdict.uid == UID
    assert verdict.api_version == version


@pytest.mark.parametrize("sent", [{"spec": {"containers": 5}}, {"spec": {"containers": [{"env": "x"}]}}, None, []])
def test_unreadable_pod_is_refused(admit: Make, sent: Any) -> None:
    """The message names the unreadable field, and the code is 400."""
    verdict = admit(sent)
    assert not verdict.allowed
    assert verdict.code == 400
    assert "cannot be read" in verdict.message


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"\xff\xfe", b'{"apiVersion": "admission.k8s.io/v2", "request": {"uid": "a"}}', b'{"request'],
)
def test_body_that_is_not_a_review_is_an_error(body: bytes) -> None:
    """The API server would not accept a response without a uid."""
    admission = Admission(
        allocation=AllocationSettings(),
        settings=WebhookSettings(),
        metrics=Metrics(),
        quotas=lambda _: Quotas(),
        claims=Claims({}),
        memberships=None,
        bindings=None,
    )
    with pytest.raises(UnreadableReviewError, match="AdmissionReview"):
        admission.answer(body)


def test_outcomes_are_counted_and_logged_with_their_uid(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each review, which a name with a line break does not split."""
    metrics = Metrics()
    admission = Admission(
        allocation=AllocationSettings(),
        settings=WebhookSettings(),
        metrics=metrics,
        quotas=lambda _: Quotas(),
        claims=Claims({}),
        memberships=None,
        bindings=None,
    )
    request = {
        "uid": UID,
        "kind": {"kind": "Pod"},
        "operation": "CREATE",
        "namespace": "a\nb",
        "object": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
    }
    with caplog.at_level("INFO"):
        admission.answer(json.dumps({"apiVersion": VERSIONS[0], "request": request}).encode())
    [record] = caplog.records
    assert "\n" not in Logfmt().format(record)
    fields = json.loads(Json().format(record))
    assert (fields["review"], fields["pod"], fields["outcome"]) == (UID, "a\nb/", "mutated")
    assert 0.001 <= fields["milliseconds"] < 10_000
    assert metrics.registry.get_sample_value("tranche_webhook_reviews_total", {"outcome": "mutated"}) == 1
    assert metrics.registry.get_sample_value("tranche_webhook_review_seconds_count") == 1
