"""Admission of containers that request compute in TFLOPs."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings

Make = Callable[..., Any]

COUNT, MEMORY, CORES, TFLOPS = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gputflops"


def container(**amounts: str) -> dict[str, Any]:
    """Return a container with these resources."""
    return {"name": "main", "resources": {"limits": {f"nvidia.com/{name}": text for name, text in amounts.items()}}}


def limits(changed: dict[str, Any]) -> dict[str, str]:
    """Return the limits of the first container of a pod."""
    found: dict[str, str] = changed["spec"]["containers"][0]["resources"]["limits"]
    return found


def quota(**single: Any) -> dict[str, QuotaSpec]:
    """Return a GpuQuota with these limits or defaults of one pod."""
    return {"team": msgspec.convert({"single": single}, QuotaSpec)}


def test_tflops_request_a_card(admit: Make, pod: Make) -> None:
    """Alone, too; no cores are added, and a second admission changes nothing."""
    verdict = admit(pod(container(gputflops="100")), allocation=AllocationSettings(default_cores_percent=90))
    assert limits(verdict.pod) == {COUNT: "1", TFLOPS: "100"}
    assert verdict.pod["spec"]["schedulerName"] == "tranche"
    assert not admit(verdict.pod, allocation=AllocationSettings(default_cores_percent=90)).operations


def test_a_container_has_one_measure(admit: Make, pod: Make) -> None:
    """The message names both, and what to do; an amount of 0 requests nothing."""
    verdict = admit(pod(container(gpu="1", gputflops="100", gpucores="30")))
    assert not verdict.allowed
    assert "requests nvidia.com/gpucores: 30 as well" in verdict.message
    assert "remove nvidia.com/gputflops or nvidia.com/gpucores" in verdict.message
    assert admit(pod(container(gpu="1", gputflops="100", gpucores="0"))).allowed
    assert admit(pod(container(gpu="1", gputflops="0", gpucores="30"))).allowed


@pytest.mark.parametrize("value", ["-1", "500m", "1Gi", "1000001", "x"])
def test_tflops_out_of_range_are_refused(admit: Make, pod: Make, value: str) -> None:
    """As is every amount that is not whole."""
    verdict = admit(pod(container(gpu="1", gputflops=value)))
    assert not verdict.allowed
    assert TFLOPS in verdict.message


def test_defaults_leave_the_measure_that_is_stated(admit: Make, pod: Make) -> None:
    """A default of cores is not added to TFLOPs, nor one of TFLOPs to cores; of both, that of cores counts."""
    cores, tflops = quota(defaults={CORES: 20}), quota(defaults={TFLOPS: 50, MEMORY: 100})
    assert limits(admit(pod(container(gputflops="100")), gpu_quotas=cores).pod) == {COUNT: "1", TFLOPS: "100"}
    one = admit(pod(container(gpu="1", gpucores="5")), gpu_quotas=tflops).pod
    assert limits(one) == {COUNT: "1", CORES: "5", MEMORY: "100"}
    assert limits(admit(pod(container(gpu="1")), gpu_quotas=tflops).pod) == {COUNT: "1", TFLOPS: "50", MEMORY: "100"}
    both = admit(pod(container(gpu="1")), gpu_quotas={**tflops, "other": cores["team"]}).pod
    assert limits(both) == {COUNT: "1", CORES: "20", MEMORY: "100"}


def test_one_pod_has_at_most_so_many_tflops(admit: Make, pod: Make) -> None:
    """A limit requires that compute is stated, in either measure."""
    limited = quota(limits={TFLOPS: 100})
    assert admit(pod(container(gpu="1", gputflops="100")), gpu_quotas=limited).allowed
    assert admit(pod(container(gpu="1", gpucores="30")), gpu_quotas=limited).allowed
    verdict = admit(pod(container(gpu="1", gputflops="101")), gpu_quotas=limited)
    assert 'spec.single.limits["nvidia.com/gputflops"] is 100' in verdict.message
    assert not admit(pod(container(gpu="1", gpumem="1")), gpu_quotas=limited).allowed


def test_a_total_that_no_pod_fits_refuses_it(admit: Make, pod: Make) -> None:
    """Of all its cards."""
    total = {"team": msgspec.convert({"total": {"limits": {TFLOPS: 150}}}, QuotaSpec)}
    verdict = admit(pod(container(gpu="2", gputflops="100")), gpu_quotas=total)
    assert "limits nvidia.com/gputflops to 150: 200 requested" in verdict.message
    assert admit(pod(container(gpu="1", gputflops="100")), gpu_quotas=total).allowed
