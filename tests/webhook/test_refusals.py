"""The pods that admission refuses, and its messages."""

from collections.abc import Callable
from typing import Any

import pytest

from allocation import limits, names

Make = Callable[..., Any]


def test_unreadable_quantity_is_refused_with_the_remedy(admit: Make, pod: Make) -> None:
    """`10Gi` of gpumem is refused; the message names the field, its value and the right value."""
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
    """An invalid quantity refuses the pod instead of admitting it without a GPU."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {name: value}}}))
    assert not verdict.allowed
    assert name in verdict.message


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"])
def test_count_of_zero_with_another_amount_is_refused(admit: Make, pod: Make, resource: str) -> None:
    """Such a request is ambiguous; with all amounts 0, as templates write it, the pod has no GPU."""
    sent = pod({"name": "main", "resources": {"limits": {"nvidia.com/gpu": "0", resource: "30"}}})
    verdict = admit(sent)
    assert verdict.code == 400
    assert "needs at least one GPU" in verdict.message
    sent["spec"]["containers"][0]["resources"]["limits"][resource] = "0"
    assert admit(sent).operations == []


@pytest.mark.parametrize(("containers", "asking"), [(64, 32), (65, 32), (64, 33)])
def test_gpu_pod_with_too_many_containers_is_refused(
    admit: Make, pod: Make, gpu: Make, containers: int, asking: int
) -> None:
    """The message names the number of containers and the limit."""
    made = [gpu(f"c{each}") if each < asking else {"name": f"c{each}"} for each in range(containers)]
    verdict = admit(pod(*made[:50], init=tuple(made[50:])))
    assert verdict.allowed == (containers == limits.CONTAINERS and asking == limits.GPU_CONTAINERS)
    assert verdict.allowed or "is the limit for a pod that Tranche schedules" in verdict.message


@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_privileged_container_is_refused(admit: Make, pod: Make, gpu: Make, place: str) -> None:
    """A privileged container in a GPU pod sees every card, so the pod is refused; the message names the container."""
    sent = pod(gpu())
    sent["spec"].setdefault(place, []).append({"name": "root", "securityContext": {"privileged": True}})
    verdict = admit(sent)
    assert not verdict.allowed
    assert verdict.code == 403
    assert "container root is privileged" in verdict.message


@pytest.mark.parametrize("capability", ["SYS_ADMIN", "CAP_SYS_ADMIN", "ALL", "sys_admin"])
def test_container_with_sys_admin_is_refused(admit: Make, pod: Make, gpu: Make, capability: str) -> None:
    """NVIDIA's toolkit treats it as privileged; the message names the container and the capability."""
    context = {"capabilities": {"add": ["NET_ADMIN", capability]}}
    verdict = admit(pod(gpu(), {"name": "root", "securityContext": context}))
    assert verdict.code == 403
    assert f"container root adds capability {capability}" in verdict.message
    context["capabilities"] = {"add": ["SYS_PTRACE"], "drop": ["ALL"]}
    assert admit(pod(gpu(), {"name": "root", "securityContext": context})).allowed


def test_privileged_container_without_gpu_request_is_admitted(admit: Make, pod: Make) -> None:
    """Admission does not restrict pods without a GPU request."""
    assert admit(pod({"name": "root", "securityContext": {"privileged": True}})).allowed


def test_node_name_is_refused(admit: Make, pod: Make, gpu: Make) -> None:
    """A GPU pod with a nodeName bypasses the scheduler, so it would never get a card."""
    verdict = admit(pod(gpu(), nodeName="n1"))
    assert not verdict.allowed
    assert verdict.code == 403
    assert "pod has node assigned" in verdict.message
    assert "nodeSelector" in verdict.message


def test_pod_without_containers_is_refused(admit: Make, pod: Make) -> None:
    """The API server would refuse it later; HAMi refuses it as well."""
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
    """Only the scheduler may write it, even on a pod that opts out; the message names key and user."""
    sent = pod(gpu())
    sent["metadata"] |= {"annotations": {key: "x"}, "labels": labels}
    verdict = admit(sent, username="mallory")
    assert not verdict.allowed
    assert verdict.code == 403
    assert key in verdict.message
    assert "'mallory'" in verdict.message


@pytest.fixture
def annotated(pod: Make, gpu: Make) -> Make:
    """Return the function that builds a GPU pod with an annotation."""

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
        ("tensor-fusion.ai/require-gpu-topology", "perhaps", "true, false"),
        ("tensor-fusion.ai/gpu-topology-max-tier", "best", "0, 1, 2, 3"),
        ("tensor-fusion.ai/gpu-topology-source", "guess", "auto, numa, vendor"),
    ],
)
def test_unknown_words_in_annotations_are_refused(
    admit: Make, annotated: Make, key: str, value: str, known: str
) -> None:
    """The message names the annotation and the valid words; HAMi would use a default."""
    verdict = admit(annotated(key, value))
    assert not verdict.allowed
    assert key in verdict.message
    assert value in verdict.message
    assert known in verdict.message


@pytest.mark.parametrize("key", sorted(names.CONSTRAINT_KEYS))
def test_long_annotation_is_refused(admit: Make, annotated: Make, key: str) -> None:
    """The message names the annotation, its length and the limit, but not its value."""
    verdict = admit(annotated(key, "x" * (limits.LIST_CHARACTERS + 1)))
    assert verdict.code == 403
    assert f"annotations {key} have 8193 characters, 8192 is the limit" in verdict.message
    assert len(verdict.message) < 200


def test_annotations_of_a_pod_without_gpu_are_ignored(admit: Make, pod: Make) -> None:
    """Admission does not read the annotations of pods without a GPU request."""
    sent = pod({"name": "main"})
    sent["metadata"]["annotations"] = {"nvidia.com/numa-bind": "perhaps"}
    assert admit(sent).allowed
