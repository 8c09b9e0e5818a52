"""The phase of a claim follows from its pods."""

from __future__ import annotations

import pytest

from cluster.gpu_claim import Phase
from scheduler.claims.users import ClaimUser, ClaimUsers


def user(phase: Phase) -> ClaimUser:
    """Return a pod that has got so far."""
    return ClaimUser("p", "2026-01-01T00:00:00Z", phase, "Waiting", "")


def test_a_claim_without_pods_is_pending() -> None:
    """Before its first pod and after its last one."""
    users = ClaimUsers()
    assert users.phase == "Pending"
    users.set("u", user("Bound"))
    assert users.phase == "Bound"
    assert users.phase_after("u", None) == "Pending"
    users.set("u", None)
    assert users.phase == "Pending"


@pytest.mark.parametrize("least", ["Failed", "Pending", "Reserved"])
def test_the_least_advanced_pod_decides(least: Phase) -> None:
    """A claim is Bound only when all of its pods are."""
    users = ClaimUsers()
    users.set("a", user("Bound"))
    assert users.phase_after("b", user(least)) == least
    users.set("b", user(least))
    assert users.phase == least
