"""What is refused, in which words."""

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


def test_unreadable_quantity_is_refused_with_the_remedy(admit: Make, pod: Make) -> None:
    """`10Gi` of gpumem is refused, and the message names field, value and what to write."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "10Gi"}}}))
    assert not verdict.allowed
    assert verdict.code == 400
    assert 'spec.containers[0].resources.limits["nvidia.com/gpumem"]' in verdict.message
    assert "'10Gi'" in verdict.message
    assert 'write "10240"' in verdict.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia.com/gpumem-percentage", "101"),
        ("nvidia.com/gpumem", "500m"),
        ("nvidia.com/gpu", "-1"),
        ("nvidia.com/gpucores", "x"),
    ],
)
def test_values_out_of_range_are_refused(admit: Make, pod: Make, name: str, value: str) -> None:
    """A value that a resource cannot have refuses the pod instead of turning it into one without GPU."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {name: value}}}))
    assert not verdict.allowed
    assert name in verdict.message


@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_privileged_container_is_refused(admit: Make, pod: Make, gpu: Make, place: str) -> None:
    """A privileged container beside a GPU request sees every card, so the pod is refused and the container named."""
    sent = pod(gpu())
    sent["spec"].setdefault(place, []).append({"name": "root", "securityContext": {"privileged": True}})
    verdict = admit(sent)
    assert not verdict.allowed
    assert verdict.code == 403
    assert "container root is privileged" in verdict.message


def test_privileged_container_without_gpu_request_is_fine(admit: Make, pod: Make) -> None:
    """Without a GPU request privilege is no affair of ours."""
    assert admit(pod({"name": "root", "securityContext": {"privileged": True}})).allowed


def test_assigned_node_is_refused(admit: Make, pod: Make, gpu: Make) -> None:
    """A GPU pod that names its node would never be given a card."""
    verdict = admit(pod(gpu(), nodeName="n1"))
    assert not verdict.allowed
    assert verdict.code == 403
    assert "pod has node assigned" in verdict.message
    assert "nodeSelector" in verdict.message


def test_pod_without_containers_is_refused(admit: Make, pod: Make) -> None:
    """As HAMi does."""
    verdict = admit(pod())
    assert not verdict.allowed
    assert "pod has no containers" in verdict.message


@pytest.mark.parametrize(
    "key",
    [
        "gpu.scheduling/allocation",
        "gpu.scheduling/allocated",
        "gpu.scheduling/leader",
        "cuda-visible-devices.gpu.scheduling/main",
        "hami.io/vgpu-devices-allocated",
        "hami.io/bind-phase",
    ],
)
@pytest.mark.parametrize("labels", [{}, {"gpu.scheduling/injection": "disabled"}])
def test_forged_annotation_is_refused(admit: Make, pod: Make, gpu: Make, key: str, labels: dict[str, str]) -> None:
    """What only the scheduler writes refuses a pod that brings it, opted out or not; key and user are named."""
    sent = pod(gpu())
    sent["metadata"] |= {"annotations": {key: "x"}, "labels": labels}
    verdict = admit(sent, username="mallory")
    assert not verdict.allowed
    assert verdict.code == 403
    assert key in verdict.message
    assert "'mallory'" in verdict.message


@pytest.fixture
def annotated(pod: Make, gpu: Make) -> Make:
    """Make a GPU pod with an annotation."""

    def make(key: str, value: str) -> dict[str, Any]:
        sent: dict[str, Any] = pod(gpu())
        sent["metadata"]["annotations"] = {key: value}
        return sent

    return make


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("hami.io/node-scheduler-policy", "bestfit", "binpack, spread"),
        ("hami.io/gpu-scheduler-policy", "binpack,bestfit", "topology-aware"),
        ("hami.io/device-scoring-weights", "slot=1", "slot, core and memory"),
        ("nvidia.com/numa-bind", "perhaps", "true or false"),
    ],
)
def test_unknown_words_in_annotations_are_refused(
    admit: Make, annotated: Make, key: str, value: str, known: str
) -> None:
    """The message names the annotation and the words that are known; HAMi would take some default."""
    verdict = admit(annotated(key, value))
    assert not verdict.allowed
    assert key in verdict.message
    assert value in verdict.message
    assert known in verdict.message


def test_annotations_of_a_pod_without_gpu_are_no_affair_of_ours(admit: Make, pod: Make) -> None:
    """Somebody else's pod may say what it likes."""
    sent = pod({"name": "main"})
    sent["metadata"]["annotations"] = {"nvidia.com/numa-bind": "perhaps"}
    assert admit(sent).allowed
