"""Which pods become ours."""

from collections.abc import Callable
from typing import Any

import pytest

from webhook.settings import WebhookSettings

Make = Callable[..., Any]


@pytest.mark.parametrize("name", ["", "default-scheduler", "tranche"])
def test_gpu_pod_goes_to_our_scheduler(admit: Make, pod: Make, gpu: Make, name: str) -> None:
    """A GPU pod that names no scheduler, the default one or ours is ours afterwards."""
    assert admit(pod(gpu(), schedulerName=name)).pod["spec"]["schedulerName"] == "tranche"


def test_absent_scheduler_name_is_set(admit: Make, pod: Make, gpu: Make) -> None:
    """Also where the field is missing altogether."""
    sent = pod(gpu())
    del sent["spec"]["schedulerName"]
    assert admit(sent).pod["spec"]["schedulerName"] == "tranche"


def test_configured_names_are_routed(admit: Make, pod: Make, gpu: Make) -> None:
    """Aliases of ours and schedulers on the takeover list lose their GPU pods to us."""
    settings = WebhookSettings(aliases=("hami-scheduler",), takeover=("batch",))
    for name in ("hami-scheduler", "batch"):
        assert admit(pod(gpu(), schedulerName=name), settings=settings).pod["spec"]["schedulerName"] == "tranche"


def test_foreign_scheduler_keeps_its_pod(admit: Make, pod: Make, gpu: Make) -> None:
    """Another scheduler's GPU pod is not touched at all."""
    verdict = admit(pod(gpu(), schedulerName="batch"))
    assert verdict.allowed
    assert not verdict.operations


@pytest.mark.parametrize("resources", [{}, {"limits": {"cpu": "1"}}, {"limits": {"nvidia.com/gpu": "0"}}])
def test_pod_without_request_is_not_touched(admit: Make, pod: Make, resources: dict[str, Any]) -> None:
    """A pod that asks for no GPU passes as it is, also one that asks for none in so many words."""
    verdict = admit(pod({"name": "main", "resources": resources, "env": [{"name": "CUDA_VISIBLE_DEVICES"}]}))
    assert verdict.allowed
    assert not verdict.operations
    assert not verdict.warnings


@pytest.mark.parametrize("label", [("gpu.scheduling/injection", "disabled"), ("hami.io/webhook", "ignore")])
def test_opted_out_pod_is_not_touched(admit: Make, pod: Make, gpu: Make, label: tuple[str, str]) -> None:
    """Either label opts a pod out, even if its request could not be read."""
    sent = pod(gpu())
    sent["metadata"]["labels"] = dict([label])
    sent["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "10Gi"
    verdict = admit(sent)
    assert verdict.allowed
    assert not verdict.operations


def test_mirror_of_a_static_pod_is_not_touched(admit: Make, pod: Make, gpu: Make) -> None:
    """It runs on its node whatever is answered, so it is let in to be seen; from a node only."""
    sent = pod(gpu(), nodeName="n1")
    sent["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert admit(sent, username="system:node:n1").allowed
    assert not admit(sent).allowed


@pytest.mark.parametrize(("operation", "kind"), [("UPDATE", "Pod"), ("CREATE", "Node")])
def test_other_reviews_are_allowed(admit: Make, pod: Make, gpu: Make, operation: str, kind: str) -> None:
    """A configuration that sends more than new pods does no harm."""
    verdict = admit(pod(gpu()), operation=operation, kind=kind)
    assert verdict.allowed
    assert not verdict.operations


def test_runtime_class_is_set_where_configured(admit: Make, pod: Make, gpu: Make) -> None:
    """A GPU pod that names no RuntimeClass gets the configured one; one that does keeps its own."""
    settings = WebhookSettings(runtime_class_name="nvidia")
    assert admit(pod(gpu()), settings=settings).pod["spec"]["runtimeClassName"] == "nvidia"
    assert admit(pod(gpu(), runtimeClassName="kata"), settings=settings).pod["spec"]["runtimeClassName"] == "kata"
    assert "runtimeClassName" not in admit(pod(gpu())).pod["spec"]
