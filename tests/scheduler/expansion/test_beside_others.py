"""Nodes that are on their way keep the rules of those that exist: places, TFLOPs and limits."""

from __future__ import annotations

from typing import Any

from allocation.names import LIMITS
from allocation.settings import AllocationSettings
from tests.scheduler.expansion.scene import TEMPLATE, Scene
from tests.scheduler.support.builders import pod
from tests.scheduler.support.quotas import gpu_quota

A100 = {**TEMPLATE, "model": "NVIDIA A100-SXM4-40GB"}


def asking(name: str, **limits: int) -> Any:
    """Return a pod that requests these of one card."""
    resources = {f"nvidia.com/{resource}": str(amount) for resource, amount in {"gpu": 1, **limits}.items()}
    return pod(name, containers=[{"name": "main", "resources": {"limits": resources, "requests": resources}}])


async def test_no_more_pods_are_promised_to_a_node_than_it_may_have() -> None:
    """Four halves of a card would fit on one node."""
    scene = Scene(settings=AllocationSettings(most_pods_per_node=2))
    scene.driver.add(*(pod(f"p{number}", memory=500) for number in range(4)))
    assert set((await scene.verdicts()).values()) == {"PreScheduled"}
    assert scene.asked == ["new-1", "new-2"]


async def test_tflops_of_a_configured_group_are_known_by_its_model() -> None:
    """An A100 has 312; what no card of the group has brings no node."""
    scene = Scene(templates=(A100,))
    scene.driver.add(asking("fits", gputflops=104), asking("never", gputflops=400))
    assert await scene.verdicts() == {"fits": "PreScheduled", "never": "NoGPUNodes"}


async def test_what_promised_pods_may_use_counts_for_the_limits_of_their_namespace() -> None:
    """Two requests of 30 % are within a limit of 100 %, and two limits of 60 % are not."""
    for limits, nodes in (({}, 2), ({LIMITS: '{"main":{"gpucores":60}}'}, 1)):
        scene = Scene()
        scene.driver.state.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpucores": 100}}))
        for number in range(2):
            made = asking(f"p{number}", gpumem=600, gpucores=30)
            made.metadata.annotations = limits
            scene.driver.add(made)
        verdicts = await scene.verdicts()
        assert sum(each == "PreScheduled" for each in verdicts.values()) == nodes, verdicts
