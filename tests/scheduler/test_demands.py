"""What users and administrators write on pods and nodes reaches the decision."""

import pytest

from allocation import names
from scheduler.cycle import Chosen, Waiting, decide
from scheduler.state import State
from tests.scheduler.builders import node, pod, state


def chosen_cards(made: State, name: str, annotations: dict[str, str] | None = None) -> list[str]:
    """Place a pod and answer its cards."""
    decision = decide(made, pod(name, memory=100, annotations=annotations))
    assert isinstance(decision, Chosen), decision
    assert decision.allocation is not None
    return [share.uuid for share in decision.allocation.containers["main"]]


def test_a_pod_chooses_its_card() -> None:
    """HAMi's annotation, by UUID."""
    assert chosen_cards(state("n1"), "a", {names.USE_UUIDS: "GPU-n1-1"}) == ["GPU-n1-1"]


def test_a_node_policy_of_the_pod_wins() -> None:
    """Spread goes to the empty node."""
    made = state("n1", "n2")
    chosen_cards(made, "first")
    assert chosen_cards(made, "second", {names.NODE_POLICY: "spread"}) == ["GPU-n2-0"]


def test_a_cordoned_card_is_left_out_and_comes_back() -> None:
    """The administrator's annotation on the node, live in both directions."""
    made = state("n1")
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {names.CORDON: " GPU-n1-0,"}}))
    assert chosen_cards(made, "a") == ["GPU-n1-1"]
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {names.CORDON: "GPU-n1-0,GPU-n1-1"}}))
    decision = decide(made, pod("b", memory=100))
    assert isinstance(decision, Waiting)
    assert "2/2 CardCordoned(n1)" in decision.note
    made.set_node(node("n1"))
    assert chosen_cards(made, "c") == ["GPU-n1-0"]


@pytest.mark.parametrize("key", [names.NODE_POLICY, names.CARD_POLICY, names.WEIGHTS, names.NUMA_BIND])
def test_an_unknown_word_holds_a_pod_that_no_webhook_saw(key: str) -> None:
    """It is not placed by some default; the reason names the annotation."""
    decision = decide(state("n1"), pod("a", memory=100, annotations={key: "perhaps"}))
    assert isinstance(decision, Waiting)
    assert key in decision.note
