"""An invalid inventory closes its node with a reason."""

import asyncio

import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import HAMI_REGISTER, HAMI_SCORES
from allocation.steps import finish
from allocation.wire import hami
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Node
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, node, pod, state, status
from tests.scheduler.support.scheduling import schedule

GOOD = '[{"id":"GPU-a","index":0,"count":4,"devmem":1000,"devcore":100,"type":"x","health":true}]'


def registered(name: str, text: str) -> Node:
    """Return a node with a register annotation."""
    return node(name, metadata={"name": name, "annotations": {HAMI_REGISTER: text}})


def reason(made: ClusterState) -> str:
    """Return why a GPU pod waits, or an empty string."""
    decision = finish(schedule(made, pod("p", memory=1)))
    return decision.note if isinstance(decision, Unschedulable) else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[{", "Input data was truncated"),
        ("GPU-a,10,1000:", "has 3 fields, not 7 or 9"),
        (GOOD.replace("1000", '"1000"'), "Expected `int`, got `str`"),
        (GOOD.replace("1000", "9999999999999999999"), "9999999999999999999 MiB"),
        (GOOD.replace("1000", "-1"), "-1 MiB"),
        (GOOD.replace("GPU-a", ""), "no card is ''"),
        (GOOD.replace("GPU-a", "GPU-a,GPU-b"), "no card is 'GPU-a,GPU-b'"),
    ],
)
def test_an_unreadable_annotation_closes_its_node_and_is_quoted(text: str, expected: str) -> None:
    """The event shows what is wrong with it; nothing else is disturbed."""
    made = state()
    made.set_node(registered("n1", text))
    assert f"node n1, annotation {HAMI_REGISTER}" in reason(made)
    assert expected in reason(made)
    made.set_node(registered("n1", GOOD))
    assert reason(made) == ""


def test_the_scores_of_an_annotation_count() -> None:
    """A pod that looks for linked cards gets those with the highest score of HAMi's plugin."""
    cards = tuple(Card(f"GPU-{name}", index, 1000, slots=4) for index, name in enumerate("abc"))
    scores = '[{"uuid":"GPU-b","score":{"GPU-c":1800}},{"uuid":"GPU-c","score":{"GPU-b":1800}}]'
    annotations = {HAMI_REGISTER: hami.encode_register(NodeInventory("n1", cards)), HAMI_SCORES: scores}
    made = state()
    made.set_node(node("n1", metadata={"name": "n1", "annotations": annotations}))
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "10"}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    asking = pod("p", annotations={"hami.io/gpu-scheduler-policy": "topology-aware"}, containers=containers)
    decision = finish(schedule(made, asking))
    assert isinstance(decision, Scheduled)
    assert decision.allocation is not None
    assert {share.uuid for share in decision.allocation.containers["main"]} == {"GPU-b", "GPU-c"}
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {**annotations, HAMI_SCORES: "["}}))
    assert HAMI_SCORES in reason(made)


def test_an_annotation_that_becomes_unreadable_closes_its_node() -> None:
    """Its former value is not used any longer."""
    made = state()
    made.set_node(registered("n1", GOOD))
    made.set_node(registered("n1", "["))
    assert HAMI_REGISTER in reason(made)
    made.set_node(node("n1"))
    assert "NodeUnregistered" in reason(made)


def test_a_report_overrides_an_unreadable_annotation() -> None:
    """The annotation is not the only inventory."""
    made = state("n1")
    made.set_node(registered("n1", "["))
    assert reason(made) == ""
    made.agent_reports.drop(status("n1"))
    assert HAMI_REGISTER in reason(made)


def test_an_empty_report_does_not_override_the_annotation() -> None:
    """An agent creates the object before it writes its status."""
    made = state()
    made.set_node(registered("n1", GOOD))
    empty = status("n1")
    empty.status = None
    made.agent_reports.set(empty)
    assert reason(made) == ""


def test_a_card_that_two_nodes_report_belongs_to_the_first() -> None:
    """The second node is closed, and the reason names the card and its owner."""
    made = state("n1")
    made.set_node(node("n2"))
    stolen = status("n1")
    stolen.metadata.name = "n2"
    made.agent_reports.set(stolen)
    assert made.ledger.nodes == ("n1",)
    decision = finish(schedule(made, pod("p", memory=1, nodeSelector={"kubernetes.io/hostname": "n2"})))
    assert isinstance(decision, Unschedulable)
    assert "node n2 reports card GPU-n1-0, which node n1 has already reported" in decision.note


@pytest.mark.parametrize("how", ["status", "other cards", "conflict"])
async def test_a_refused_report_counts_when_the_other_owner_goes(how: str) -> None:
    """No new report is needed, and waiting pods become active."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_node(node("n2"))
    stolen = status("n1")
    stolen.metadata.name = "n2"
    made.agent_reports.set(stolen)
    made.set_pod(pod("waits", memory=1, nodeSelector={"kubernetes.io/hostname": "n2"}))
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    if how == "status":
        made.agent_reports.drop(status("n1"))
    elif how == "other cards":
        other = status("n3")
        other.metadata.name = "n1"
        made.agent_reports.set(other)
    else:
        made.set_node(node("n4"))
        made.agent_reports.set(status("n4"))
        other = status("n4")
        other.metadata.name = "n1"
        made.agent_reports.set(other)
    async with asyncio.timeout(10):
        assert await made.queue.pop() is entry
    assert isinstance(finish(schedule(made, entry.pod)), Scheduled)


def test_the_first_refused_node_gets_the_card() -> None:
    """Two nodes wait for one card: one gets it, the other stays closed, now because of the first."""
    made = state("n1")
    for name in ("n2", "n3"):
        made.set_node(node(name))
        stolen = status("n1")
        stolen.metadata.name = name
        made.agent_reports.set(stolen)
    made.agent_reports.drop(status("n1"))
    assert made.ledger.nodes == ("n2",)
    assert "which node n2 has already reported" in made.closed_nodes.now()["n3"].message
