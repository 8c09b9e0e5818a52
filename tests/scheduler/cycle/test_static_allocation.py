"""A pod whose static allocation does not match the cards of its node waits."""

from typing import Any

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.steps import finish
from allocation.wire.record import encode
from scheduler.cycle.result import Scheduled, Unschedulable
from tests.scheduler.support.builders import pod, state, status
from tests.scheduler.support.scheduling import schedule


def decided(made: Any, **fields: Any) -> Scheduled | Unschedulable:
    """Schedule a pod whose static allocation has `fields` for card 1 of node n1."""
    share = CardShare(**{"uuid": "GPU-n1-1", "index": 1, "memory_mib": 600, "cores": 0, **fields})
    return finish(
        schedule(made, pod("p", memory=600, annotations={ALLOCATION: encode(Allocation("n1", {"main": (share,)}))}))
    )


def test_a_matching_static_allocation_is_used() -> None:
    """It takes all of a card, at its index."""
    assert isinstance(decided(state("n1"), memory_mib=1000, cores=1000), Scheduled)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"index": 0}, "card GPU-n1-1 of node n1 has index 1, not 0"),
        ({"memory_mib": 1001}, "card GPU-n1-1 of node n1 has 1000 MiB, not 1001"),
        ({"uuid": "GPU-x"}, "node n1 has no card GPU-x"),
    ],
)
def test_a_mismatch_keeps_the_pod_waiting(fields: dict[str, Any], expected: str) -> None:
    """The reason names the annotation, the card and both values; nothing is reserved."""
    made = state("n1")
    waiting = decided(made, **fields)
    assert isinstance(waiting, Unschedulable)
    assert f"annotation {ALLOCATION}, container main: {expected}" in waiting.note
    assert made.ledger.reservation("uid-p") is None


def test_more_cores_than_the_card_has_keep_the_pod_waiting() -> None:
    """A card may have fewer than a thousand millicards."""
    made = state("n1")
    small = status("n1")
    assert small.status is not None
    for device in small.status.devices:
        device.cores = 500
    made.agent_reports.set(small)
    waiting = decided(made, cores=600)
    assert isinstance(waiting, Unschedulable)
    assert "card GPU-n1-1 of node n1 has 500 millicards, not 600" in waiting.note


def test_a_static_allocation_for_a_node_without_cards_waits() -> None:
    """The reason is the same as for any pod on that node."""
    made = state("n1")
    made.agent_reports.drop(status("n1"))
    waiting = decided(made)
    assert isinstance(waiting, Unschedulable)
    assert "static allocation on node n1: NodeUnregistered" in waiting.note
