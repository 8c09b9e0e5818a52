"""Annotations of pods and nodes constrain where pods are placed."""

import pytest

from allocation import names
from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.scheduling import schedule


def chosen_cards(made: ClusterState, name: str, annotations: dict[str, str] | None = None) -> list[str]:
    """Schedule a pod and return the UUIDs of its cards."""
    decision = finish(schedule(made, pod(name, memory=100, annotations=annotations)))
    assert isinstance(decision, Scheduled), decision
    assert decision.allocation is not None
    return [share.uuid for share in decision.allocation.containers["main"]]


def test_a_pod_gets_the_card_that_it_names() -> None:
    """By HAMi's annotation with the UUID."""
    assert chosen_cards(state("n1"), "a", {names.USE_UUIDS: "GPU-n1-1"}) == ["GPU-n1-1"]


def test_the_node_policy_of_a_pod_overrides_the_default() -> None:
    """With `spread` the second pod goes to the empty node."""
    made = state("n1", "n2")
    chosen_cards(made, "first")
    assert chosen_cards(made, "second", {names.NODE_POLICY: "spread"}) == ["GPU-n2-0"]


def test_a_cordoned_card_is_not_used_until_it_is_uncordoned() -> None:
    """The annotation of the node takes effect at once in both directions."""
    made = state("n1")
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {names.CORDON: " GPU-n1-0,"}}))
    assert chosen_cards(made, "a") == ["GPU-n1-1"]
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {names.CORDON: "GPU-n1-0,GPU-n1-1"}}))
    decision = finish(schedule(made, pod("b", memory=100)))
    assert isinstance(decision, Unschedulable)
    assert "2/2 CardCordoned(n1)" in decision.note
    made.set_node(node("n1"))
    assert chosen_cards(made, "c", {names.CARD_POLICY: "spread"}) == ["GPU-n1-0"]


@pytest.mark.parametrize(
    "key",
    [
        *(names.NODE_POLICY, names.CARD_POLICY, names.WEIGHTS, names.NUMA_BIND),
        *(names.REQUIRE_TOPOLOGY, names.TOPOLOGY_MAX_TIER, names.TOPOLOGY_SOURCE),
    ],
)
def test_an_invalid_annotation_holds_a_pod_that_bypassed_the_webhook(key: str) -> None:
    """It is not placed by a default; the reason names the annotation."""
    decision = finish(schedule(state("n1"), pod("a", memory=100, annotations={key: "perhaps"})))
    assert isinstance(decision, Unschedulable)
    assert key in decision.note
