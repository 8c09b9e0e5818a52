"""A misspelt resource name is refused, because no node would ever offer it."""

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpumemory", "gpumem"),
        ("gpu-memory", "gpumem"),
        ("gpu-mem", "gpumem"),
        ("gpucore", "gpucores"),
        ("gpumem-percent", "gpumem-percentage"),
        ("gpus", "gpu"),
        ("priorities", "priority"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"nvidia.com/gpu": "1"}])
def test_near_miss_is_refused_with_the_intended_name(
    admit: Make, pod: Make, written: str, meant: str, more: dict[str, str]
) -> None:
    """It is refused alone and with a correct name, in any container; the message names the field."""
    container = {"name": "first", "resources": {"limits": {f"nvidia.com/{written}": "3000", **more}}}
    verdict = admit(pod({"name": "main"}, init=(container,)))
    assert not verdict.allowed
    assert f'spec.initContainers[0].resources.limits["nvidia.com/{written}"]' in verdict.message
    assert verdict.message.endswith(f"did you mean nvidia.com/{meant}?")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("mig-1g.5gb", 'annotation nvidia.com/vgpu-mode: "mig", or name a GpuClaim with exclusivity MIG'),
        ("gpu.shared", "write nvidia.com/gpu: 1 and nvidia.com/gpumem or nvidia.com/gpumem-percentage"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"nvidia.com/gpu": "1"}])
def test_a_resource_of_nvidias_plugin_is_warned_of(
    admit: Make, pod: Make, name: str, instead: str, more: dict[str, str]
) -> None:
    """A node with that plugin may offer it, so the pod is admitted; the warning says what to write instead."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {f"nvidia.com/{name}": "1", **more}}}))
    assert verdict.allowed
    (warning,) = verdict.warnings
    assert f"spec.containers[0]: nvidia.com/{name} is a resource of NVIDIA's device plugin" in warning
    assert instead in warning


@pytest.mark.parametrize("name", ["mig-1g.5gb", "gpu.shared", "hostdev", "rdma_shared_device_a", "GRID_T4-2Q", "vgpu"])
def test_other_resources_of_the_vendor_are_left_alone(admit: Make, pod: Make, name: str) -> None:
    """Other components offer them, so they are not misspellings."""
    assert admit(pod({"name": "main", "resources": {"limits": {f"nvidia.com/{name}": "1"}}})).allowed
