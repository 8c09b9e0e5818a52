"""A static allocation is about cards as they are, or it waits."""

from typing import Any

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.record import encode
from scheduler.cycle import Chosen, Waiting, decide
from tests.scheduler.builders import pod, state, status


def decided(made: Any, **fields: Any) -> Chosen | Waiting:
    """Decide a pod whose static allocation says `fields` of card 1 of node n1."""
    share = CardShare(**{"uuid": "GPU-n1-1", "index": 1, "memory_mib": 600, "cores": 0, **fields})
    return decide(made, pod("p", memory=600, annotations={ALLOCATION: encode(Allocation("n1", {"main": (share,)}))}))


def test_one_that_is_right_is_taken() -> None:
    """The whole of a card, at its index."""
    assert isinstance(decided(state("n1"), memory_mib=1000, cores=1000), Chosen)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"index": 0}, "card GPU-n1-1 of node n1 has index 1, not 0"),
        ({"memory_mib": 1001}, "card GPU-n1-1 of node n1 has 1000 MiB, not 1001"),
        ({"uuid": "GPU-x"}, "node n1 has no card GPU-x"),
    ],
)
def test_one_that_is_wrong_waits(fields: dict[str, Any], expected: str) -> None:
    """The reason names the annotation, the card and both values; nothing is reserved."""
    made = state("n1")
    waiting = decided(made, **fields)
    assert isinstance(waiting, Waiting)
    assert f"annotation {ALLOCATION}, container main: {expected}" in waiting.note
    assert made.ledger.holding("uid-p") is None


def test_cores_beyond_the_card_wait() -> None:
    """A card may have less than a thousand millicards to give."""
    made = state("n1")
    small = status("n1")
    assert small.status is not None
    for device in small.status.devices:
        device.cores = 500
    made.set_status(small)
    waiting = decided(made, cores=600)
    assert isinstance(waiting, Waiting)
    assert "card GPU-n1-1 of node n1 has 500 millicards, not 600" in waiting.note


def test_one_for_a_node_without_cards_waits() -> None:
    """The reason is that of any pod there."""
    made = state("n1")
    made.drop_status(status("n1"))
    waiting = decided(made)
    assert isinstance(waiting, Waiting)
    assert "static allocation on node n1: NodeUnregistered" in waiting.note
