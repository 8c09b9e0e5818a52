"""Limits that limit nothing are found, by the names that the configuration gives the resources."""

import msgspec

from allocation import ineffective
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings, ResourceNames


def problems(spec: dict[str, dict[str, dict[str, int]]], settings: AllocationSettings) -> tuple[str, ...]:
    """Return what is wrong with a GpuQuota."""
    return ineffective.of_quota(msgspec.convert(spec, QuotaSpec), settings)


def test_each_part_of_a_quota_has_its_own_resources() -> None:
    """Cards of one pod are limited by maxCards, and a percentage of memory is only a default."""
    single = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}}
    found = problems({"single": {**single, "defaults": {"nvidia.com/gpumem-percentage": 50}}}, AllocationSettings())
    known = "the resources that count here are nvidia.com/gpumem, nvidia.com/gpucores, nvidia.com/gputflops"
    assert found == (
        'spec.single.limits["nvidia.com/gpu"] has no effect: use spec.single.maxCards',
        f'spec.single.limits["nvidia.com/gpumem-percentage"] has no effect: {known}',
    )


def test_renamed_resources_count_by_their_names() -> None:
    """The usual name is then the mistake."""
    renamed = AllocationSettings(resources=ResourceNames(count="example.com/vgpu"))
    assert problems({"total": {"limits": {"example.com/vgpu": 1}}}, renamed) == ()
    (found,) = problems({"total": {"limits": {"nvidia.com/gpu": 1}}}, renamed)
    assert "nvidia.com/gpu" in found


def test_an_endless_name_is_cut() -> None:
    """The API server bounds the number of names and not their length."""
    (found,) = problems({"total": {"limits": {"g" * 100_000: 1}}}, AllocationSettings())
    assert len(found) < 300
