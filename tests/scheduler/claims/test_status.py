"""The status of a GpuClaim follows from the pods that name it."""

from typing import Any

import pytest

from cluster.gpu_claim import ClaimCondition, GpuClaimStatus
from scheduler.claims.status import desired, patch
from scheduler.claims.users import ClaimUser

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NEW = GpuClaimStatus()
WAITS = ClaimUser("waits", "2026-01-03", message="pod waits: why")
FAILED = ClaimUser("failed", "2026-01-04", "Failed", "BindingRefused", "pod failed: no")
RESERVED = ClaimUser("reserved", "2026-01-02", "Reserved", "LeasesHeld", "pod reserved", "n2", (3,))
BOUND = ClaimUser("bound", "2026-01-01", "Bound", "Bound", "pod bound", "n1", (0, 1))


@pytest.mark.parametrize(
    ("users", "phase", "reason", "allocated"),
    [
        ([], "Pending", "NoPod", ""),
        ([WAITS], "Pending", "Waiting", ""),
        ([RESERVED], "Reserved", "LeasesHeld", "n2:3"),
        ([BOUND], "Bound", "Bound", "n1:0,1"),
        ([BOUND, RESERVED], "Reserved", "LeasesHeld", "n1:0,1;n2:3"),
        ([RESERVED, WAITS, BOUND], "Pending", "Waiting", "n1:0,1;n2:3"),
        ([RESERVED, WAITS, BOUND, FAILED], "Failed", "BindingRefused", "n1:0,1;n2:3"),
    ],
)
def test_the_phase_is_that_of_the_pod_that_got_least_far(
    users: list[ClaimUser], phase: str, reason: str, allocated: str
) -> None:
    """Its message is shown, too; node and cards are those of the oldest pod that has some."""
    status = desired(users, before=NEW, now=NOW)
    (condition,) = status.conditions
    assert (status.phase, condition.reason, status.allocated) == (phase, reason, allocated)
    assert condition.type == "Allocated"
    assert condition.status == ("True" if phase == "Bound" else "False")
    assert status.message == condition.message != ""
    oldest = {"": ("", ()), "n2:3": ("n2", (3,))}.get(allocated, ("n1", (0, 1)))
    assert (status.node_name, status.gpu_ids) == oldest


def test_nothing_changes_if_nothing_happened() -> None:
    """The condition keeps the time of its last change."""
    before = desired([BOUND], before=NEW, now=THEN)
    assert desired([BOUND], before=before, now=NOW) == before
    (condition,) = desired([WAITS], before=before, now=NOW).conditions
    assert condition == ClaimCondition("Allocated", "False", "Waiting", "pod waits: why", NOW)


def test_long_values_are_cut() -> None:
    """To what the API server accepts, and the cards at the end of a pod's."""
    users = [
        ClaimUser(f"p{number:03}", str(number), "Bound", "Bound", "x" * 5000, f"node-{number:03}", tuple(range(10)))
        for number in range(200)
    ]
    status = desired(users, before=NEW, now=NOW)
    assert len(status.message) == 1024
    assert 4000 < len(status.allocated) <= 4096
    assert status.allocated.endswith(":0,1,2,3,4,5,6,7,8,9")


def test_a_field_without_value_is_removed() -> None:
    """Otherwise the node of an earlier reservation would stay."""
    written: Any = patch(desired([WAITS], before=NEW, now=NOW))
    assert {name: value for name, value in written.items() if name != "conditions"} == {
        "phase": "Pending",
        "nodeName": None,
        "gpuIds": None,
        "allocated": None,
        "message": "pod waits: why",
    }
    assert patch(desired([RESERVED], before=NEW, now=NOW))["gpuIds"] == (3,)
