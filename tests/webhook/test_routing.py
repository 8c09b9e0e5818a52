"""Which pods admission routes to our scheduler."""

from collections.abc import Callable
from typing import Any

import pytest

from allocation.settings import AllocationSettings
from webhook.settings import WebhookSettings

Make = Callable[..., Any]


@pytest.mark.parametrize("name", ["", "default-scheduler", "tranche"])
def test_gpu_pod_goes_to_our_scheduler(admit: Make, pod: Make, gpu: Make, name: str) -> None:
    """A GPU pod with an empty schedulerName, the default one or ours gets ours."""
    assert admit(pod(gpu(), schedulerName=name)).pod["spec"]["schedulerName"] == "tranche"


def test_absent_scheduler_name_is_set(admit: Make, pod: Make, gpu: Make) -> None:
    """A pod without the field gets our schedulerName."""
    sent = pod(gpu())
    del sent["spec"]["schedulerName"]
    assert admit(sent).pod["spec"]["schedulerName"] == "tranche"


def test_aliases_and_takeovers_are_routed(admit: Make, pod: Make, gpu: Make) -> None:
    """GPU pods of aliases and of schedulers in `takeover` get our schedulerName."""
    settings = WebhookSettings(aliases=("hami-scheduler",), takeover=("batch",))
    for name in ("hami-scheduler", "batch"):
        assert admit(pod(gpu(), schedulerName=name), settings=settings).pod["spec"]["schedulerName"] == "tranche"


@pytest.mark.parametrize("name", ["", "tranche", "tranche-claims"])
def test_pod_with_claims_of_other_drivers_is_handed_over(admit: Make, pod: Make, gpu: Make, name: str) -> None:
    """To kube-scheduler where that is configured; without claims, or without that, a pod stays with the loop."""
    claims = [{"name": "nic", "resourceClaimName": "nic-0"}]
    handing_over = AllocationSettings(resource_claims="hand-over")
    sent = pod(gpu(), schedulerName=name, resourceClaims=claims)
    admitted = admit(sent, allocation=handing_over).pod
    assert admitted["spec"]["schedulerName"] == "tranche-claims"
    assert not admit(admitted, allocation=handing_over).operations
    assert admit(sent).pod["spec"]["schedulerName"] == "tranche"
    assert admit(pod(gpu(), schedulerName=name), allocation=handing_over).pod["spec"]["schedulerName"] == "tranche"


def test_foreign_scheduler_keeps_its_pod(admit: Make, pod: Make, gpu: Make) -> None:
    """A GPU pod of another scheduler is not changed."""
    verdict = admit(pod(gpu(), schedulerName="batch"))
    assert verdict.allowed
    assert not verdict.operations


@pytest.mark.parametrize("resources", [{}, {"limits": {"cpu": "1"}}, {"limits": {"nvidia.com/gpu": "0"}}])
def test_pod_without_gpu_request_is_unchanged(admit: Make, pod: Make, resources: dict[str, Any]) -> None:
    """A pod without a GPU request is not changed, nor is one that requests 0 GPUs."""
    verdict = admit(pod({"name": "main", "resources": resources, "env": [{"name": "CUDA_VISIBLE_DEVICES"}]}))
    assert verdict.allowed
    assert not verdict.operations
    assert not verdict.warnings


@pytest.mark.parametrize("label", [("gpu.scheduling/injection", "disabled"), ("hami.io/webhook", "ignore")])
def test_opted_out_pod_is_unchanged(admit: Make, pod: Make, gpu: Make, label: tuple[str, str]) -> None:
    """Either label opts a pod out, even if its request is invalid."""
    sent = pod(gpu())
    sent["metadata"]["labels"] = dict([label])
    sent["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "10Gi"
    verdict = admit(sent)
    assert verdict.allowed
    assert not verdict.operations


def test_mirror_of_a_static_pod_is_unchanged(admit: Make, pod: Make, gpu: Make) -> None:
    """The kubelet runs it anyway, so it is admitted and thereby visible, but only from a node."""
    sent = pod(gpu(), nodeName="n1")
    sent["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert admit(sent, username="system:node:n1").allowed
    assert not admit(sent).allowed


@pytest.mark.parametrize(("operation", "kind"), [("UPDATE", "Pod"), ("CREATE", "Node")])
def test_reviews_of_other_requests_are_allowed(admit: Make, pod: Make, gpu: Make, operation: str, kind: str) -> None:
    """A webhook configuration that sends other requests does no harm."""
    verdict = admit(pod(gpu()), operation=operation, kind=kind)
    assert verdict.allowed
    assert not verdict.operations


def test_runtime_class_is_set_where_configured(admit: Make, pod: Make, gpu: Make) -> None:
    """A GPU pod without a RuntimeClass gets the configured one; any other keeps its own."""
    settings = WebhookSettings(runtime_class_name="nvidia")
    assert admit(pod(gpu()), settings=settings).pod["spec"]["runtimeClassName"] == "nvidia"
    assert admit(pod(gpu(), runtimeClassName="kata"), settings=settings).pod["spec"]["runtimeClassName"] == "kata"
    assert "runtimeClassName" not in admit(pod(gpu())).pod["spec"]


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (30, 30)])
def test_gpu_pod_has_a_grace_period_of_at_least_one_second(
    admit: Make, pod: Make, gpu: Make, asked: int, given: int
) -> None:
    """With 0, a deleted pod's cards would be free before its containers have ended."""
    admitted = admit(pod(gpu(), terminationGracePeriodSeconds=asked)).pod
    assert admitted["spec"]["terminationGracePeriodSeconds"] == given


@pytest.mark.parametrize(
    ("asked", "longest", "given"),
    [(3600, 3600, 3600), (3601, 3600, 3600), (10**9, 3600, 3600), (61, 60, 60), (10**9, 0, 10**9)],
)
def test_grace_period_of_a_gpu_pod_is_capped_with_a_warning(
    admit: Make, pod: Make, gpu: Make, *, asked: int, longest: int, given: int
) -> None:
    """Cards would stay with a pod that was deleted or preempted for as long as its creator likes; 0 caps nothing."""
    settings = WebhookSettings(longest_grace_seconds=longest)
    admitted = admit(pod(gpu(), terminationGracePeriodSeconds=asked), settings=settings)
    assert admitted.pod["spec"]["terminationGracePeriodSeconds"] == given
    warning = (
        f"spec.terminationGracePeriodSeconds is {asked}: reduced to {given}, the longest of a GPU pod here"
        " (webhook.longest_grace_seconds)"
    )
    assert (warning in admitted.warnings) is (given != asked)


def test_longest_grace_period_is_an_hour_by_default() -> None:
    """As long as a pod can protect itself from preemption by annotation; a negative one is refused at the start."""
    assert WebhookSettings().longest_grace_seconds == 3600
    with pytest.raises(ValueError, match="longest_grace_seconds is -1"):
        WebhookSettings(longest_grace_seconds=-1)


@pytest.mark.parametrize("seconds", [0, 10**9])
def test_pod_without_gpu_keeps_its_grace_period(admit: Make, pod: Make, seconds: int) -> None:
    """It has no cards that could be freed too early, or too late."""
    assert not admit(pod({"name": "main"}, terminationGracePeriodSeconds=seconds)).operations
