"""What was derived stands in the pod."""

from collections.abc import Callable
from typing import Any

import pytest

from allocation.settings import AllocationSettings

Make = Callable[..., Any]


def resources(verdict: Any, kind: str = "limits") -> Any:
    """Read the first container's resources."""
    return verdict.pod["spec"]["containers"][0]["resources"].get(kind)


def container(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    """Make a container."""
    return {
        "name": "main",
        "resources": {k: v for k, v in (("limits", limits), ("requests", requests)) if v is not None},
    }


def test_count_defaults_to_one_card(admit: Make, pod: Make) -> None:
    """Memory alone asks for it on one card."""
    verdict = admit(pod(container({"nvidia.com/gpumem": "3k"})))
    assert resources(verdict) == {"nvidia.com/gpumem": "3k", "nvidia.com/gpu": "1"}
    assert resources(verdict, "requests") is None


@pytest.mark.parametrize("percentage", [{}, {"nvidia.com/gpumem-percentage": "100"}])
def test_whole_card_is_asked_alone(admit: Make, pod: Make, percentage: dict[str, str]) -> None:
    """A card asked whole is asked with all its cores, as in HAMi."""
    verdict = admit(pod(container({"nvidia.com/gpu": "2", **percentage})))
    assert resources(verdict) == {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "100", **percentage}


def test_configured_defaults_are_written_down(admit: Make, pod: Make) -> None:
    """A default that is configured becomes part of the pod, so that a later configuration does not change it."""
    allocation = AllocationSettings(default_memory_mib=4000, default_cores_percent=25)
    verdict = admit(pod(container({"nvidia.com/gpu": "1"})), allocation=allocation)
    assert resources(verdict) == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}


def test_requests_stay_equal_to_limits(admit: Make, pod: Make) -> None:
    """Where there are requests they get the same: the API server refuses extended resources that differ."""
    sent = {"cpu": "1", "nvidia.com/gpumem": "3k"}
    verdict = admit(pod(container(sent, sent)))
    assert resources(verdict) == resources(verdict, "requests") == {**sent, "nvidia.com/gpu": "1"}


def test_request_alone_becomes_a_limit(admit: Make, pod: Make) -> None:
    """The API server accepts no extended resource without a limit; what was requested is limited."""
    verdict = admit(pod(container(None, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"})))
    assert resources(verdict) == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}


def test_own_words_are_kept(admit: Make, pod: Make, gpu: Make) -> None:
    """What a user wrote is not rewritten."""
    assert resources(admit(pod(gpu()))) == gpu()["resources"]["limits"]


def test_memory_said_twice_warns(admit: Make, pod: Make) -> None:
    """MiB win over a percentage, both are kept, and the user is told."""
    sent = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k", "nvidia.com/gpumem-percentage": "50"}
    verdict = admit(pod(container(sent)))
    assert resources(verdict) == sent
    assert any("nvidia.com/gpumem-percentage" in warning for warning in verdict.warnings)
