"""Reviews of both versions, readable or not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from allocation.settings import AllocationSettings
from cluster.logs import Json, Logfmt
from webhook.admission import Admission
from webhook.metrics import Metrics
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
        "no pod",
        None,
    ],
)
def test_every_answer_has_the_reviews_uid_and_version(admit: Make, version: str, sent: Any) -> None:
    """Mutated, refused, untouched or malformed: the API server finds its own uid and version."""
    verdict = admit(sent, api_version=version)
    assert verdict.uid == UID
    assert verdict.api_version == version


@pytest.mark.parametrize("sent", [{"spec": {"containers": 5}}, {"spec": {"containers": [{"env": "x"}]}}, None, []])
def test_pod_that_cannot_be_read_is_refused(admit: Make, sent: Any) -> None:
    """With the place that could not be read, and code 400."""
    verdict = admit(sent)
    assert not verdict.allowed
    assert verdict.code == 400
    assert "cannot be read" in verdict.message


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"\xff\xfe", b'{"apiVersion": "admission.k8s.io/v2", "request": {"uid": "a"}}', b'{"request'],
)
def test_what_is_no_review_has_no_answer(body: bytes) -> None:
    """There is no uid to answer under, so it is an error of its own."""
    admission = Admission(
        allocation=AllocationSettings(), settings=WebhookSettings(), metrics=Metrics(), quotas=lambda _: {}
    )
    with pytest.raises(UnreadableReviewError, match="AdmissionReview"):
        admission.answer(body)


def test_outcomes_are_counted_and_logged_under_their_uid(caplog: pytest.LogCaptureFixture) -> None:
    """One line per review, which names from outside cannot break."""
    metrics = Metrics()
    admission = Admission(
        allocation=AllocationSettings(), settings=WebhookSettings(), metrics=metrics, quotas=lambda _: {}
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
    told = json.loads(Json().format(record))
    assert (told["review"], told["pod"], told["outcome"]) == (UID, "a\nb/", "mutated")
    assert metrics.registry.get_sample_value("tranche_webhook_reviews_total", {"outcome": "mutated"}) == 1
    assert metrics.registry.get_sample_value("tranche_webhook_review_seconds_count") == 1
