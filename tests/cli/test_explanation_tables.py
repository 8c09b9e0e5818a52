"""What a person reads of an explanation."""

import pytest

from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason
from cli import explanation_tables
from cli.reason_words import WORDS, meaning
from scheduler.explanation import explain
from tests.scheduler.builders import allocated, pod, state


@pytest.mark.parametrize("code", [*(reason.name for reason in CardReason), NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED])
def test_every_code_has_words(code: str) -> None:
    """A new user does not know what a code means."""
    assert WORDS[code]


def test_words_of_several_reasons_stand_together() -> None:
    """As the codes do; what is in words already has no others."""
    assert meaning("5/8 CardInsufficientMemory, 3/8 CardNotHealth") == (
        "its agent says that it is not healthy; less memory is free than asked"
    )
    assert meaning("Insufficient cpu") == ""


def test_the_first_line_says_what_to_hope_for() -> None:
    """Waiting helps, or it does not."""
    made = state("n1", "n2", cards=1)
    for node in ("n1", "n2"):
        made.set_pod(allocated(f"on-{node}", node=node, memory=700))
    first = explanation_tables.sentence(explain(made, pod("a", memory=600)))
    assert first == (
        "pod default/a waits: none of the 2 nodes takes it now; pods that finish, or are evicted, could change that"
    )
    assert "no pod that finishes could change that" in explanation_tables.sentence(explain(made, pod("a", memory=9000)))
    assert explanation_tables.sentence(explain(made, pod("a", memory=100))) == "pod default/a would go to n1, card 0"
    gone = explanation_tables.sentence(explain(made, pod("a", schedulerName="other")))
    assert gone.startswith("pod default/a is not ours to place")


def test_nodes_with_one_reason_are_one_line() -> None:
    """The chosen one first, then those that fit, then the others; long lists are cut, but not in the wide table."""
    made = state(*(f"n{number}" for number in range(8)))
    made.set_pod(pod("stray", memory=10, node="n7", phase="Running"))
    told = explain(made, pod("a", memory=600))
    rows = explanation_tables.of_nodes(told).rows
    assert [row[0] for row in rows] == ["1", "6", "1"]
    assert rows[0][1:] == ("chosen", "", "score 4.25", "n0")
    assert rows[1][-1] == "n1,n2,n3,n4,n5,…"
    assert rows[2][1].startswith("pod default/stray runs here uncounted")
    assert explanation_tables.of_nodes(told, wide=True).rows[1][-1] == "n1,n2,n3,n4,n5,n6"


def test_the_cards_of_a_node_each_say_why() -> None:
    """What is free, and what the card says of the container."""
    made = state("n1", "n2")
    made.set_pod(allocated("runs", node="n1", memory=700))
    told = explain(made, pod("a", memory=600))
    (first, second) = explanation_tables.of_cards(told.nodes[0]).rows
    assert first[2:7] == ("300/1000", "100/100", "3/4", "main", "CardInsufficientMemory")
    assert second[6] == "FITS,chosen"
    assert explanation_tables.of_cards(told.nodes[1]).rows[0][6] == "FITS,best here"


def test_what_is_asked_for_is_said() -> None:
    """By container, in the units in which it was asked."""
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50", "nvidia.com/gpucores": "30"}
    asks = pod("a", containers=[{"name": "main", "resources": {"limits": limits}}])
    told = explain(state("n1"), asks)
    assert explanation_tables.asks(told) == "main 2 cards with 50% of the memory and 30% of the compute each"
