"""Static allocations of pods that name a GpuClaim: both must agree."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.webhook.support.claims import (
    CLAIM,
    CLAIMS,
    EXCLUSIVE,
    claims,
    limits,
)

Make = Callable[..., Any]

TRUSTED = "system:serviceaccount:tranche-system:tranche-static"
SHARE = {"uuid": "GPU-a", "index": 0, "memoryMiB": 40960, "cores": 1000}


def static(pod: dict[str, Any], containers: Any, name: str = "exclusive", **record: Any) -> dict[str, Any]:
    """Return `pod` with a claim and a static allocation."""
    text = json.dumps({"v": 1, "node": "n1", "containers": containers, **record})
    return claims(pod, name, **{"gpu.scheduling/allocation": text})


def test_static_allocation_of_a_claim_is_marked(admit: Make, pod: Make) -> None:
    """The mark charges each card once, and whole; the environment names the cards as the claim says."""
    sent = static(pod({"name": "a"}, {"name": "b"}), {"a": [SHARE], "b": [SHARE]})
    verdict = admit(sent, username=TRUSTED, claims=CLAIMS)
    assert [limits(verdict.pod, position) for position in range(2)] == [EXCLUSIVE, EXCLUSIVE]
    annotations = verdict.pod["metadata"]["annotations"]
    mark = {"name": "exclusive", "exclusivity": "Exclusive"}
    assert json.loads(annotations["gpu.scheduling/allocation"])["claim"] == mark
    assert annotations["cuda-visible-devices.gpu.scheduling/b"] == "0"
    again = admit(verdict.pod, username=TRUSTED, claims=CLAIMS)
    assert again.allowed
    assert not again.operations
    assert admit(static(pod({"name": "a"}), {"a": [SHARE]}, claim=mark), username=TRUSTED, claims=CLAIMS).allowed


@pytest.mark.parametrize(
    ("name", "containers", "words"),
    [
        ("four", {"main": [SHARE]}, "containers.main: 1 cards': GpuClaim four gives 4 cards"),
        ("shared", {"main": [SHARE]}, "memoryMiB 40960': GpuClaim shared gives 3000 MiB of each card"),
        ("exclusive", {"main": [{**SHARE, "cores": 500}]}, "cores 500': GpuClaim exclusive gives 100 % of each card"),
        (
            "exclusive",
            {"main": [SHARE], "side": [{**SHARE, "uuid": "GPU-b"}]},
            "the containers of GpuClaim exclusive have the same cards",
        ),
        ("exclusive", {"none": [SHARE]}, "it must name containers of the pod"),
    ],
)
def test_static_allocation_that_contradicts_the_claim_is_refused(
    admit: Make, pod: Make, name: str, containers: Any, words: str
) -> None:
    """The message names both values."""
    sent = static(pod({"name": "main"}, {"name": "side"}), containers, name)
    verdict = admit(sent, username=TRUSTED, claims=CLAIMS)
    assert verdict.code == 400
    assert words in verdict.message


def test_static_allocation_of_another_claim_is_refused(admit: Make, pod: Make) -> None:
    """The annotation and the allocation name one claim."""
    sent = static(pod({"name": "main"}), {"main": [SHARE]}, claim={"name": "other", "exclusivity": "Shared"})
    verdict = admit(sent, username=TRUSTED, claims=CLAIMS)
    assert "claim other, Shared': the pod names GpuClaim exclusive, Exclusive" in verdict.message


def test_static_allocation_with_a_mark_needs_the_annotation(admit: Make, pod: Make) -> None:
    """The scheduler would not see the claim."""
    sent = static(pod({"name": "main"}), {"main": [SHARE]}, claim={"name": "exclusive", "exclusivity": "Exclusive"})
    del sent["metadata"]["annotations"][CLAIM]
    assert "the pod names no GpuClaim" in admit(sent, username=TRUSTED, claims=CLAIMS).message
