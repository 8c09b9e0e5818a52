"""Limits above requests at admission: what the annotation may say, and what says it in its place."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.claim import ClaimDevices, ClaimSpec
from allocation.fairness.quota_spec import QuotaSpec
from allocation.names import ALLOCATION, CLAIM, ISOLATION, LIMITS, MODE
from allocation.settings import AllocationSettings
from tests.webhook.conftest import TRUSTED
from tests.webhook.support.claims import Claims
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
LIMITED = {LIMITS: '{"main":{"gpucores":60}}'}


def container(**limits: object) -> dict[str, Any]:
    """Return a container with these limits."""
    return {"name": "main", "resources": {"limits": {f"nvidia.com/{key}": str(each) for key, each in limits.items()}}}


def annotated(pod: Make, annotations: dict[str, str], **limits: object) -> dict[str, Any]:
    """Return a pod with annotations, which requests a part of a card."""
    made: dict[str, Any] = pod(container(**{"gpu": 1, "gpumem": 3000, "gpucores": 30, **limits}))
    made["metadata"]["annotations"] = annotations
    return made


def quota(**spec: Any) -> QuotaSpec:
    """Return the spec of a quota."""
    return msgspec.convert(spec, QuotaSpec)


def test_a_pod_with_limits_is_prepared_like_others(admit: Make, pod: Make) -> None:
    """Its resources are what it requests; the annotation stays as it is."""
    verdict = admit(annotated(pod, LIMITED))
    assert verdict.allowed
    assert verdict.pod["spec"]["containers"][0]["resources"]["limits"][CORES] == "30"
    assert verdict.pod["metadata"]["annotations"] == LIMITED
    assert verdict.operations == admit(annotated(pod, {})).operations


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"main":{"gpucores":20}}', "a limit must not be below the request"),
        ('{"main":{"gpumem":4000}}', "allocation.memory_bursting"),
        ('{"side":{"gpucores":60}}', "names container side"),
        ("60", "of the form"),
    ],
)
def test_limits_that_cannot_be_are_refused(admit: Make, pod: Make, text: str, words: str) -> None:
    """The message says what to write instead."""
    verdict = admit(annotated(pod, {LIMITS: text}))
    assert (verdict.allowed, verdict.code) == (False, 400)
    assert words in verdict.message


def test_a_container_that_requests_tflops_has_no_limit_of_cores(admit: Make, pod: Make) -> None:
    """Quotas of TFLOPs would not count what it may use beyond its request."""
    made = pod(container(gpu=1, gpumem=3000, gputflops=100))
    made["metadata"]["annotations"] = LIMITED
    verdict = admit(made)
    assert (verdict.allowed, verdict.code) == (False, 400)
    assert "gpucores is 60, and the container requests TFLOPs" in verdict.message


def test_limits_of_a_pod_whose_cards_something_else_decides_are_refused(admit: Make, pod: Make) -> None:
    """A claim, a static allocation and an annotation for MIG instances each say what the pod has of a card."""
    claims = Claims({"c": ClaimSpec(ClaimDevices(1, "Shared", memory_mib=3000, cores=30))})
    assert "GpuClaim" in admit(annotated(pod, {**LIMITED, CLAIM: "c"}), claims=claims).message
    for asking in ({MODE: "mig"}, {ISOLATION: "mig"}):
        assert "MIG instances, whose size is fixed" in admit(annotated(pod, {**LIMITED, **asking})).message
    allocation = {
        "v": 1,
        "node": "n1",
        "containers": {"main": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 3000, "cores": 300}]},
    }
    static = annotated(pod, {**LIMITED, ALLOCATION: json.dumps(allocation)})
    settings = WebhookSettings(trusted=(TRUSTED,))
    assert ALLOCATION in admit(static, username=TRUSTED, settings=settings).message


def test_a_request_that_differs_from_its_limit_is_refused_with_the_annotation(admit: Make, pod: Make) -> None:
    """The API server refuses it as well, in words that do not help; `3k` equals `3000`."""
    made = annotated(pod, {})
    made["spec"]["containers"][0]["resources"] |= {"requests": {"nvidia.com/gpu": "1", MEMORY: "3k", CORES: "20"}}
    verdict = admit(made)
    assert not verdict.allowed
    assert f'write 20 in both, and the limit as annotation {LIMITS}: {{"main":{{"gpucores":30}}}}' in verdict.message
    made["spec"]["containers"][0]["resources"]["requests"][CORES] = "30"
    assert admit(made).allowed


def test_quotas_limit_what_a_pod_may_use_and_what_it_requests(admit: Make, pod: Make) -> None:
    """`limits` count the limit, `requests` the request; of one pod and of all."""
    asked = annotated(pod, LIMITED)
    for spec, words in (
        (quota(single={"limits": {CORES: 59, MEMORY: 9000}}), "container main requests 60 of each card"),
        (quota(total={"limits": {CORES: 59}}), f"limits {CORES} to 59: 60 requested"),
        (quota(total={"requests": {CORES: 29}}), f"limits requests.{CORES} to 29: 30 requested"),
    ):
        assert words in admit(asked, gpu_quotas={"q": spec}).message
    fits = quota(total={"limits": {CORES: 60}, "requests": {CORES: 30}}, single={"limits": {CORES: 60}})
    assert admit(asked, gpu_quotas={"q": fits}).allowed
    assert "60 requested" in admit(asked, quotas={"r": {f"limits.{CORES}": "59"}}).message


def test_limits_of_memory_are_admitted_where_they_are_switched_on(admit: Make, pod: Make) -> None:
    """By the configuration, for all."""
    settings = AllocationSettings(memory_bursting=True)
    assert admit(annotated(pod, {LIMITS: '{"main":{"gpumem":4000}}'}), allocation=settings).allowed
