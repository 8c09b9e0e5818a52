"""Derived GPU resources are written into the pod."""

from collections.abc import Callable
from typing import Any

import pytest

from allocation.settings import AllocationSettings

Make = Callable[..., Any]


def resources(verdict: Any, kind: str = "limits") -> Any:
    """Return the first container's resources."""
    return verdict.pod["spec"]["containers"][0]["resources"].get(kind)


def container(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a container with these resources."""
    return {
        "name": "main",
        "resources": {k: v for k, v in (("limits", limits), ("requests", requests)) if v is not None},
    }


def test_count_defaults_to_one_card(admit: Make, pod: Make) -> None:
    """A request of memory alone is a request for one card."""
    verdict = admit(pod(container({"nvidia.com/gpumem": "3k"})))
    assert resources(verdict) == {"nvidia.com/gpumem": "3k", "nvidia.com/gpu": "1"}
    assert resources(verdict, "requests") is None


@pytest.mark.parametrize("percentage", [{}, {"nvidia.com/gpumem-percentage": "100"}])
def test_request_for_whole_cards_includes_all_cores(admit: Make, pod: Make, percentage: dict[str, str]) -> None:
    """A request for whole cards includes all their cores, as in HAMi."""
    verdict = admit(pod(container({"nvidia.com/gpu": "2", **percentage})))
    assert resources(verdict) == {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "100", **percentage}


def test_configured_defaults_are_written_into_the_pod(admit: Make, pod: Make) -> None:
    """A configured default is written into the pod, so a later change of the setting does not affect it."""
    allocation = AllocationSettings(default_memory_mib=4000, default_cores_percent=25)
    verdict = admit(pod(container({"nvidia.com/gpu": "1"})), allocation=allocation)
    assert resources(verdict) == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}


def test_requests_stay_equal_to_limits(admit: Make, pod: Make) -> None:
    """The API server refuses extended resources whose request differs from the limit."""
    sent = {"cpu": "1", "nvidia.com/gpumem": "3k"}
    verdict = admit(pod(container(sent, sent)))
    assert resources(verdict) == resources(verdict, "requests") == {**sent, "nvidia.com/gpu": "1"}


def test_request_without_limit_becomes_a_limit(admit: Make, pod: Make) -> None:
    """The API server requires a limit for extended resources, so the request is copied to the limits."""
    verdict = admit(pod(container(None, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"})))
    assert resources(verdict) == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}


def test_stated_quantities_are_kept(admit: Make, pod: Make, gpu: Make) -> None:
    """A quantity that the user wrote keeps its form."""
    assert resources(admit(pod(gpu()))) == gpu()["resources"]["limits"]


def test_memory_in_two_units_warns(admit: Make, pod: Make) -> None:
    """MiB take precedence over a percentage; both stay, and a warning says so."""
    sent = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k", "nvidia.com/gpumem-percentage": "50"}
    verdict = admit(pod(container(sent)))
    assert resources(verdict) == sent
    assert any("nvidia.com/gpumem-percentage" in warning for warning in verdict.warnings)
