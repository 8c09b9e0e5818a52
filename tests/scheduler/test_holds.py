"""Holds are released once a pod of higher rank takes a share of their cards, and come back if that was a trial."""

import msgspec
import pytest

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.settings import AllocationSettings
from scheduler.holds import Hold
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.participants import Placed
from tests.scheduler.support.builders import allocated, pod, state

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


@pytest.mark.parametrize(
    ("node", "taken", "is_free"),
    [
        ("n1", OTHER, False),
        ("n1", Charge("GPU-1", 9, 0, 1), True),
        ("n1", Charge("GPU-1", 10, 0, 1, whole=True), False),
        ("n1", FIRST, True),
        ("n2", OTHER, True),
    ],
)
def test_what_a_pod_does_not_take_of_its_hold_is_free_for_others(node: str, taken: Charge, *, is_free: bool) -> None:
    """They are notified, once the pod is counted: it may get other cards than those that were held for it."""
    hold = Hold("waits", QueueKey("team"), (0, 0), "n1", (OTHER,), frozenset())
    assert hold.frees(node, (taken,)) == is_free


@pytest.mark.parametrize(("node", "is_notified"), [("n1", False), ("n2", True)])
def test_pods_that_wait_are_notified_of_a_hold_that_its_pod_does_not_use(
    node: str, monkeypatch: pytest.MonkeyPatch, *, is_notified: bool
) -> None:
    """Its cards are free then, and no other event says so."""
    made, waits = state("n1", "n2"), pod("waits")
    made.holds.add(Hold(waits.uid, QueueKey("team"), (0, 0), "n1", (OTHER,), frozenset()), waits)
    events = list[ClusterEvent]()
    monkeypatch.setattr(made.queue, "notify", events.append)
    made.assume(Placed(waits, node, charges=(OTHER,)))
    assert events == ([ClusterEvent.POD_REMOVED] if is_notified else [])


@pytest.mark.parametrize("queue", ["loop", "handed-over", "kube-scheduler"])
@pytest.mark.parametrize("ends", ["no", "bound", "deleted"])
def test_what_was_held_before_a_trial_is_held_again_for_a_pod_that_waits(queue: str, ends: str) -> None:
    """In extender mode nothing here says which pods wait; preemption ends the holds of those that do not."""
    settings = AllocationSettings(resource_claims="hand-over" if queue == "handed-over" else "hold")
    made = state("n1", settings=settings, has_queue=queue != "kube-scheduler")
    scheduler = "tranche-claims" if queue == "handed-over" else "tranche"
    waits = pod("waits", schedulerName=scheduler)
    made.set_pod(waits)
    hold = Hold(waits.uid, QueueKey("team"), (0, 0), "n1", (OTHER,), frozenset())
    pairs = [(hold, waits)]
    made.restore_holds(pairs)
    assert made.holds.of(waits.uid) is hold
    made.restore_holds([(msgspec.structs.replace(hold, node="n2"), waits)])
    assert made.holds.of(waits.uid) is hold
    if ends == "bound":
        made.set_pod(allocated("waits", node="n1", memory=100, schedulerName=scheduler), waits)
    elif ends == "deleted":
        made.drop_pod(waits)
    made.release_hold(waits.uid)
    made.restore_holds(pairs)
    assert (made.holds.of(waits.uid) is hold) == (ends == "no" or queue == "kube-scheduler")
