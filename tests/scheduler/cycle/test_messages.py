"""The reasons of many nodes are put together in steps, between which other tasks run."""

from allocation.placement.rejection import Rejection
from allocation.reasons import CardReason
from allocation.steps import finish
from scheduler.cycle.messages import no_fit


def test_many_nodes_are_grouped_in_parts() -> None:
    """5,000 nodes a thousand at a time; the note is about all of them."""
    several = Rejection("main", 8, {CardReason.CardNotHealth: 5, CardReason.CardInsufficientMemory: 3})
    nodes = {f"n{number}": several for number in range(5000)}
    assert sum(1 for _ in no_fit(nodes, {})) >= 5
    assert finish(no_fit(nodes, {})).startswith("no available node, 5000 nodes do not meet: 5000 nodes 3/8")
