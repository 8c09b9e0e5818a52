"""For how long pods have held cards, by namespace and queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import CHARGED_TO
from scheduler.state import allocated_time
from scheduler.state.allocated_time import Owner
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, allocated, pod, state, status
from tests.scheduler.support.driving import gpu_queue

TEAM = Owner("team")


def hours(made: ClusterState) -> dict[Owner, float]:
    """Return the card-seconds of each owner."""
    return dict(made.allocated_time)


def test_pod_counts_with_its_part_of_the_card_from_its_reservation_to_its_end() -> None:
    """A quarter of a card for a minute is fifteen seconds of a card; pods without cards count nothing."""
    clock = Clock()
    made = state("n1", clock=clock)
    held = allocated("a", node="n1", memory=250, namespace="team")
    made.set_pod(held)
    made.set_pod(pod("b", node="n1", namespace="other", phase="Running"))
    clock.now += 60
    assert hours(made) == {TEAM: 15.0}
    made.set_pod(held)
    made.drop_pod(held)
    clock.now += 60
    assert hours(made) == {TEAM: 15.0}


def test_resized_pod_counts_with_each_of_its_sizes() -> None:
    """From the moment at which it is charged for it."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_pod(allocated("a", node="n1", memory=250, namespace="team"))
    clock.now += 60
    made.set_pod(allocated("a", node="n1", memory=500, namespace="team"))
    clock.now += 60
    assert hours(made) == {TEAM: 45.0}


def test_pods_are_counted_by_their_gpu_queue() -> None:
    """The own queue of a namespace has no name."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.limits.set_queue(gpu_queue("research"))
    charged = allocated("a", node="n1", memory=250, namespace="team")
    charged.metadata.annotations[CHARGED_TO] = "research"
    made.set_pod(charged)
    made.set_pod(allocated("b", node="n1", memory=250, card=1, namespace="team"))
    clock.now += 4
    assert hours(made) == {Owner("team", "research"): 1.0, TEAM: 1.0}


def test_pod_that_is_read_before_its_node_counts_as_soon_as_its_cards_are_known() -> None:
    """As after a change of leaders; it goes on counting while its node reports no cards."""
    clock = Clock()
    made = state(clock=clock)
    made.set_pod(allocated("a", node="n1", memory=500, namespace="team"))
    clock.now += 60
    assert hours(made) == {TEAM: 0.0}
    made.agent_reports.set(status("n1"))
    clock.now += 60
    assert hours(made) == {TEAM: 30.0}
    made.agent_reports.set(status("n1", cards=0))
    clock.now += 60
    assert hours(made) == {TEAM: 60.0}


def test_owner_without_pods_is_forgotten_after_an_hour() -> None:
    """Prometheus has read its last value by then."""
    clock = Clock()
    made = state("n1", clock=clock)
    held = allocated("a", node="n1", memory=250, namespace="team")
    made.set_pod(held)
    made.drop_pod(held)
    clock.now += 3599
    assert TEAM in hours(made)
    clock.now += 1
    assert hours(made) == {}


def test_more_owners_than_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, whichever ends first."""
    monkeypatch.setattr(allocated_time, "MOST", 1)
    clock = Clock()
    made = state("n1", clock=clock)
    pods = [allocated(name, node="n1", memory=250, namespace=name) for name in ("a", "b", "c")]
    for each in pods:
        made.set_pod(each)
    clock.now += 4
    assert hours(made) == {Owner("a"): 1.0, Owner(): 2.0}
    for each in pods:
        made.drop_pod(each)
    assert made.allocated_time.held == {}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 100)),
        max_size=20,
    )
)
def test_sum_is_that_of_what_was_held_at_each_time(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes, is resized and goes, in whatever order."""
    clock = Clock()
    made, held, expected = state("n1", clock=clock, cards=1), dict[str, int](), 0.0
    for name, quarters, pause in steps:
        others = sum(amount for other, amount in held.items() if other != name)
        each = allocated(name, node="n1", memory=250 * quarters, namespace="team")
        if quarters and others + quarters <= 4:
            made.set_pod(each)
            held[name] = quarters
        elif name in held:
            made.drop_pod(each)
            del held[name]
        clock.now += pause
        expected += sum(held.values()) / 4 * pause
    assert sum(hours(made).values()) == pytest.approx(expected)
