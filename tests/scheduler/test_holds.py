"""Holds are released once a pod of higher rank takes a share of their cards."""

import pytest

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from scheduler.holds import Hold
from tests.scheduler.support.builders import pod, state

CARD, OTHER = Charge("GPU-0", 0, 0, 0, whole=True), Charge("GPU-1", 10, 0, 1)
FIRST, SECOND = (Charge(f"MIG-{number}", 10, 10, 1, parent="GPU-0") for number in range(2))


@pytest.mark.parametrize(
    ("held", "taken", "is_released"),
    [
        (CARD, CARD, True),
        (CARD, FIRST, True),
        (FIRST, CARD, True),
        (FIRST, FIRST, True),
        (FIRST, SECOND, False),
        (CARD, OTHER, False),
        (OTHER, CARD, False),
    ],
)
def test_a_hold_ends_when_its_card_or_an_instance_of_it_is_taken(
    held: Charge, taken: Charge, *, is_released: bool
) -> None:
    """Two instances of a card are apart, but a whole card takes its instances, and an instance a part of its card."""
    made, waits = state("n1"), pod("waits")
    hold = Hold(waits.uid, QueueKey("team"), (0, 0), "n1", (held,), frozenset())
    made.holds.add(hold, waits)
    made.holds.release_taken({hold.reservation}, "n1", [taken])
    assert (made.holds.of(waits.uid) is None) == is_released
