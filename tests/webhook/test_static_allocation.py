"""Static allocations: a trusted user names the cards."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]

TRUSTED = "system:serviceaccount:tranche-system:tranche-static"
KEY = "gpu.scheduling/allocation"
SHARE = {"uuid": "GPU-a", "index": 0, "memoryMiB": 3000, "cores": 300}
OTHER = {"uuid": "GPU-b", "index": 4, "memoryMiB": 3000, "cores": 300}


@pytest.fixture
def static(pod: Make) -> Make:
    """Return the function that builds a pod with a static allocation."""

    def make(containers: Any, *sent: dict[str, Any], annotations: Any = (), **spec: Any) -> dict[str, Any]:
        made = pod(*(sent or ({"name": "main", "resources": {}},)), **spec)
        record = json.dumps({"v": 1, "node": "n1", "containers": containers})
        made["metadata"]["annotations"] = {KEY: record, **dict(annotations)}
        return made

    return make


def test_pod_gets_exactly_its_cards(admit: Make, static: Make, reference: Make) -> None:
    """Limits, environment and the annotations that the environment reads are complete at admission."""
    verdict = admit(static({"main": [SHARE, OTHER]}), username=TRUSTED)
    container = verdict.pod["spec"]["containers"][0]
    assert container["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "nvidia.com/gpumem": "3000",
        "nvidia.com/gpucores": "30",
    }
    assert reference("CUDA_DEVICE_MEMORY_LIMIT_1", "main") in container["env"]
    annotations = verdict.pod["metadata"]["annotations"]
    assert annotations["gpu.scheduling/allocated"] == "0,4"
    assert annotations["cuda-visible-devices.gpu.scheduling/main"] == "GPU-a,GPU-b"
    assert annotations["cuda-device-memory-limit-1.gpu.scheduling/main"] == "3000m"
    read = [entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]]
    assert {f"metadata.annotations['{key}']" for key in annotations} >= set(read)
    assert verdict.pod["spec"]["schedulerName"] == "tranche"


def test_mutation_of_a_static_allocation_is_idempotent(admit: Make, static: Make) -> None:
    """The added annotations are derived from the allocation, so the second review does not refuse them."""
    once = admit(static({"main": [SHARE]}, {"name": "main"}, {"name": "log"}), username=TRUSTED)
    again = admit(once.pod, username=TRUSTED)
    assert again.allowed
    assert not again.operations


def test_limits_equal_to_the_allocation_are_accepted(admit: Make, static: Make) -> None:
    """A pod may repeat the allocation in its limits."""
    sent = static({"main": [SHARE]}, {"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "3k"}}})
    limits = admit(sent, username=TRUSTED).pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k", "nvidia.com/gpucores": "30"}


def test_node_name_must_be_the_allocations_node(admit: Make, static: Make) -> None:
    """`spec.nodeName` must be empty or equal to the allocation's node."""
    assert admit(static({"main": [SHARE]}, nodeName="n1"), username=TRUSTED).allowed
    verdict = admit(static({"main": [SHARE]}, nodeName="n2"), username=TRUSTED)
    assert not verdict.allowed
    assert "'n2'" in verdict.message
    assert "'n1'" in verdict.message


def test_static_allocation_of_an_untrusted_user_is_refused(admit: Make, static: Make) -> None:
    """The ledger trusts an allocation, so only trusted users may write one."""
    verdict = admit(static({"main": [SHARE]}), username="mallory")
    assert not verdict.allowed
    assert KEY in verdict.message
    assert "'mallory'" in verdict.message


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ({}, "at least one container"),
        ({"main": []}, "at least one card"),
        ({"gone": [SHARE]}, "the pod has main"),
        ({"main": [SHARE, {**OTHER, "memoryMiB": 1}]}, "make them equal"),
        ({"main": [SHARE, {**OTHER, "cores": 310}]}, "make them equal"),
        ({"main": [{**SHARE, "memoryMiB": 0}]}, "1 or more"),
        ({"main": [{**SHARE, "cores": 305}]}, "write 300"),
        ({"main": [{**SHARE, "tflops": 1000}]}, "leave tflops out"),
        ({"main": [SHARE, SHARE]}, "twice"),
        ({"main": "x"}, "containers"),
    ],
)
def test_impossible_allocations_are_refused(admit: Make, static: Make, containers: Any, words: str) -> None:
    """The message names the field and the remedy."""
    verdict = admit(static(containers), username=TRUSTED)
    assert not verdict.allowed
    assert verdict.code == 400
    assert KEY in verdict.message
    assert words in verdict.message


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nvidia.com/gpu": "2"}, "gives 1"),
        ({"nvidia.com/gpumem": "3001"}, "gives 3000"),
        ({"nvidia.com/gpucores": "31"}, "gives 30"),
        ({"nvidia.com/gpumem-percentage": "10"}, "so it cannot request a percentage; remove it"),
        ({"nvidia.com/gputflops": "10"}, "so it cannot request TFLOPs; remove it"),
    ],
)
def test_limits_that_contradict_the_allocation_are_refused(
    admit: Make, static: Make, limits: dict[str, str], words: str
) -> None:
    """Neither the limits nor the allocation silently takes precedence."""
    verdict = admit(static({"main": [SHARE]}, {"name": "main", "resources": {"limits": limits}}), username=TRUSTED)
    assert not verdict.allowed
    ((name, amount),) = limits.items()
    assert f'resources.limits["{name}"]' in verdict.message
    assert amount in verdict.message
    assert words in verdict.message


def test_gpu_container_without_shares_is_refused(admit: Make, static: Make, gpu: Make) -> None:
    """The container would have no cards, because the scheduler does not place this pod."""
    verdict = admit(static({"main": [SHARE]}, {"name": "main"}, gpu("other")), username=TRUSTED)
    assert not verdict.allowed
    assert "spec.containers[1]" in verdict.message


@pytest.mark.parametrize(
    "annotation",
    [
        ("gpu.scheduling/allocated", "7"),
        ("cuda-visible-devices.gpu.scheduling/main", "GPU-z"),
        ("hami.io/vgpu-node", "n1"),
        ("gpu.scheduling/leader", "1/x"),
    ],
)
def test_annotations_that_contradict_the_allocation_are_refused(
    admit: Make, static: Make, annotation: tuple[str, str]
) -> None:
    """A trusted user may not contradict the allocation either."""
    verdict = admit(static({"main": [SHARE]}, annotations=[annotation]), username=TRUSTED)
    assert not verdict.allowed
    assert annotation[0] in verdict.message


def test_annotations_without_an_allocation_are_refused(admit: Make, pod: Make, gpu: Make) -> None:
    """A trusted user must bring the allocation that they are derived from."""
    sent = pod(gpu())
    sent["metadata"]["annotations"] = {"gpu.scheduling/allocated": "0"}
    assert not admit(sent, username=TRUSTED).allowed


@pytest.mark.parametrize(
    ("labels", "scheduler"), [({"gpu.scheduling/injection": "disabled"}, "tranche"), ({}, "other")]
)
def test_opt_out_with_a_static_allocation_is_refused(
    admit: Make, static: Make, labels: dict[str, str], scheduler: str
) -> None:
    """A pod cannot opt out of admission and have cards."""
    sent = static({"main": [SHARE]}, schedulerName=scheduler)
    sent["metadata"]["labels"] = labels
    verdict = admit(sent, username=TRUSTED)
    assert not verdict.allowed
    assert "remove one or the other" in verdict.message
