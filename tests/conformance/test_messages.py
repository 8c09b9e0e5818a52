"""2.5: the messages about a decision."""

import pytest

from allocation.placement.rejection import Rejection
from allocation.reasons import CardReason
from allocation.steps import finish
from scheduler.cycle.messages import find_fit, no_fit
from scheduler.cycle.result import Scheduled, Unschedulable
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.scheduling import schedule


@pytest.mark.rule("2.5.1")
def test_the_message_of_a_scheduled_pod_has_hamis_words() -> None:
    """It names the chosen node and the runners-up."""
    made = state("n1", "n2")
    made.set_pod(allocated("old", node="n2", memory=1000))
    chosen = finish(schedule(made, pod("new", memory=500)))
    assert isinstance(chosen, Scheduled)
    assert chosen.note == "find fit node(n2), 0 nodes not fit, 2 nodes fit(n2:10.00,n1:3.75)"


@pytest.mark.rule("2.5.1")
def test_the_message_names_three_nodes_at_most() -> None:
    """HAMi names every fitting node, which is too long for an event in a cluster of 1,000 nodes."""
    note = find_fit({f"n{at}": 1.0 for at in range(1000)}, fitting=1000, rejected=5)
    assert note == "find fit node(n0), 5 nodes not fit, 1000 nodes fit(n0:1.00,n1:1.00,n2:1.00,…)"


@pytest.mark.rule("2.5.2", "2.5.3")
def test_the_message_of_an_unschedulable_pod_groups_nodes_by_reason() -> None:
    """The reasons of a node are sorted as text, each with its number of cards."""
    made = state("n1", "n2")
    made.set_pod(allocated("old", node="n1", memory=900))
    unschedulable = finish(schedule(made, pod("new", memory=1500)))
    assert isinstance(unschedulable, Unschedulable)
    assert unschedulable.note.startswith(
        "no available node, 2 nodes do not meet: 2 nodes 2/2 CardInsufficientMemory(n1,n2)"
    )
    several = Rejection("main", 8, {CardReason.CardNotHealth: 5, CardReason.CardInsufficientMemory: 3})
    note = finish(no_fit({"n9": several}, {}))
    assert "1 node does not meet: 1 node 3/8 CardInsufficientMemory, 5/8 CardNotHealth(n9)" in note
