"""GpuClaims: which pods that name one are refused, and when a claim is read."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.webhook.support.claims import (
    CLAIMS,
    EXCLUSIVE,
    SPECS,
    Claims,
    claims,
    container,
    limits,
)

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "stated", "words"),
    [
        ("exclusive", {"gpu": "4"}, "'4': GpuClaim exclusive gives 1; write 1, or remove it"),
        ("four", {"gpu": "1"}, "'1': GpuClaim four gives 4"),
        ("exclusive", {"gpu": "1", "gpumem": "3000"}, "'3000': GpuClaim exclusive does not give this resource"),
        ("exclusive", {"gpu": "1", "gpucores": "50"}, "'50': GpuClaim exclusive gives 100"),
        ("shared", {"gpu": "1", "gpumem": "2000"}, "'2000': GpuClaim shared gives 3000"),
        ("shared", {"gpu": "1", "gpumem-percentage": "10"}, "'10': GpuClaim shared does not give this resource"),
        ("slot", {"gpu": "1", "gpucores": "10"}, "'10': GpuClaim slot does not give this resource"),
        ("shared", {"gpu": "1", "gputflops": "10"}, "'10': GpuClaim shared does not give this resource"),
        ("mig", {"gpumem": "10000"}, "'10000': GpuClaim mig does not give this resource"),
    ],
)
def test_contradiction_is_refused_with_both_values(
    admit: Make, pod: Make, name: str, stated: dict[str, str], words: str
) -> None:
    """The message names the container's field, what it states and what the claim gives."""
    amounts = container(**stated)["resources"]["limits"]
    for kind in ("limits", "requests"):
        sent = pod({"name": "side"}, {"name": "main", "resources": {kind: amounts}})
        verdict = admit(claims(sent, name), claims=CLAIMS)
        assert not verdict.allowed
        assert verdict.code == 400
        assert verdict.message.startswith(f'spec.containers[1].resources.{kind}["nvidia.com/')
        assert words in verdict.message


def test_node_selector_that_contradicts_the_claim_is_refused(admit: Make, pod: Make) -> None:
    """No node could have both values."""
    verdict = admit(claims(pod({"name": "main"}, nodeSelector={"pool": "b"}), "pool"), claims=CLAIMS)
    assert verdict.message == (
        "spec.nodeSelector[\"pool\"] holds 'b': GpuClaim pool requires 'a'; remove it, or name another claim"
    )


def test_pod_whose_containers_all_decline_is_refused(admit: Make, pod: Make) -> None:
    """It names a claim that no container wants."""
    verdict = admit(claims(pod(container("a", gpu="0"), container("b", gpu="0"))), claims=CLAIMS)
    assert verdict.code == 403
    assert "names GpuClaim exclusive, but every container requests 0 nvidia.com/gpu" in verdict.message


@pytest.mark.parametrize("name", ["", "a/b", "..", "a/status", "UPPER", "a,b", "a" * 254, "-a", "a.", "a b"])
def test_impossible_name_is_refused_without_a_lookup(admit: Make, pod: Make, name: str) -> None:
    """The name becomes part of a request to the API server."""
    lookup = Claims({name: SPECS["exclusive"]})
    verdict = admit(claims(pod({"name": "main"}), name), claims=lookup)
    assert verdict.code == 400
    assert "it must be the name of a GpuClaim in the namespace of the pod" in verdict.message
    assert lookup.reads == []


@pytest.mark.parametrize(
    "extra", [{"securityContext": {"privileged": True}}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]
)
def test_privileged_claim_pod_is_refused(admit: Make, pod: Make, extra: dict[str, Any]) -> None:
    """A claim does not open the other cards of a node."""
    verdict = admit(claims(pod({"name": "main"}, {"name": "side", **extra})), claims=CLAIMS)
    assert "container side" in verdict.message
    assert "sees all GPUs of its node" in verdict.message


def test_claim_pod_with_a_node_is_refused(admit: Make, pod: Make) -> None:
    """No scheduler would see it."""
    assert "pod has node assigned" in admit(claims(pod({"name": "main"}, nodeName="n1")), claims=CLAIMS).message


def test_misspelled_resource_of_a_claim_pod_is_refused(admit: Make, pod: Make) -> None:
    """It would keep the pod pending for ever."""
    assert "did you mean nvidia.com/gpumem?" in admit(claims(pod(container(gpumemory="1"))), claims=CLAIMS).message


def test_quota_counts_each_card_once(admit: Make, pod: Make) -> None:
    """Two containers of one claim share its cards, so they are within a quota of four cards."""
    two = pod(container("a", gpu="4"), container("b", gpu="4"))
    quotas = {"few": {"limits.nvidia.com/gpu": "4"}}
    assert admit(claims(two, "four"), claims=CLAIMS, quotas=quotas).allowed
    quotas = {"few": {"limits.nvidia.com/gpu": "3"}}
    verdict = admit(claims(two, "four"), claims=CLAIMS, quotas=quotas)
    assert "ResourceQuota few limits nvidia.com/gpu to 3: 4 requested" in verdict.message


def test_claim_that_the_copy_lacks_is_read_once(admit: Make, pod: Make) -> None:
    """A claim that was created just before its pod has not arrived yet."""
    lookup = Claims({}, SPECS)
    assert limits(admit(claims(pod({"name": "main"})), claims=lookup).pod) == EXCLUSIVE
    assert lookup.reads == [("team", "exclusive")]


def test_missing_claim_is_refused_with_the_remedy(admit: Make, pod: Make) -> None:
    """Of a controller, which creates the pod again, as of a user."""
    verdict = admit(claims(pod({"name": "main"}), "gone"), claims=Claims(SPECS))
    assert verdict.code == 403
    assert verdict.message == (
        "GpuClaim gone does not exist in namespace team: create it there first, then the pod, or remove annotation"
        " gpu.scheduling/claim (see 'kubectl get gpuclaims -n team')"
    )


def test_unreadable_claim_is_refused_for_now(admit: Make, pod: Make) -> None:
    """A pod that is admitted without its claim would start without a card."""
    lookup = Claims({}, failure="the API server cannot be reached")
    verdict = admit(claims(pod({"name": "main"})), claims=lookup)
    assert verdict.code == 503
    assert verdict.message == (
        "GpuClaim exclusive cannot be read: the API server cannot be reached; create the pod again"
    )


def test_cached_claim_is_not_read(admit: Make, pod: Make) -> None:
    """Nor is anything for a pod without a claim."""
    lookup = Claims(SPECS)
    admit(claims(pod({"name": "main"})), claims=lookup)
    admit(pod(container(gpu="1")), claims=lookup)
    assert lookup.reads == []
