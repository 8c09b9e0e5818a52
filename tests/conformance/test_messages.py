"""2.5: what people read about a decision."""

import pytest

from allocation.reasons import CardReason
from allocation.rejection import Rejection
from scheduler.cycle import Chosen, Waiting, decide
from scheduler.messages import find_fit, no_fit
from tests.scheduler.builders import allocated, pod, state


@pytest.mark.rule("2.5.1")
def test_a_found_node_and_its_rivals() -> None:
    """In HAMi's words, from a decision."""
    made = state("n1", "n2")
    made.set_pod(allocated("old", node="n2", memory=1000))
    chosen = decide(made, pod("new", memory=500))
    assert isinstance(chosen, Chosen)
    assert chosen.note == "find fit node(n2), 0 nodes not fit, 2 nodes fit(n2:10.00,n1:3.75)"


@pytest.mark.rule("2.5.1")
def test_a_large_cluster_is_not_listed() -> None:
    """HAMi names every fitting node, which no event of 1,000 nodes has room for."""
    note = find_fit({f"n{at}": 1.0 for at in range(1000)}, fitting=1000, rejected=5)
    assert note == "find fit node(n0), 5 nodes not fit, 1000 nodes fit(n0:1.00,n1:1.00,n2:1.00,…)"


@pytest.mark.rule("2.5.2", "2.5.3")
def test_nodes_by_reason() -> None:
    """A node's reasons, sorted as text, with how many of its cards they are."""
    made = state("n1", "n2")
    made.set_pod(allocated("old", node="n1", memory=900))
    waiting = decide(made, pod("new", memory=1500))
    assert isinstance(waiting, Waiting)
    assert waiting.note == "no available node, 2 nodes do not meet: 2 nodes 2/2 CardInsufficientMemory(n1,n2)"
    several = Rejection("main", 8, {CardReason.CardNotHealth: 5, CardReason.CardInsufficientMemory: 3})
    assert "1 nodes 3/8 CardInsufficientMemory, 5/8 CardNotHealth(n9)" in no_fit({"n9": several}, {})
