"""Pods go where they leave the cards of a node with CPU and memory for the next pods."""

from __future__ import annotations

from typing import Any

import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import CARD_POLICY, USE_TYPES
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled
from scheduler.extender.wire import Args
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.extending import Bindings, cache, extending
from tests.scheduler.support.scheduling import cycle_of, forget, schedule


def cluster(*, stranded: float = 300.0) -> ClusterState:
    """Return n0, whose 16 cores suffice for its two cards, and n1 with 64 cores; n0 would be full first."""
    made = state(stranded=stranded)
    for name, cpu in (("n0", "16"), ("n1", "64")):
        made.set_node(node(name, status={"allocatable": {"cpu": cpu, "memory": "256Gi", "pods": "110"}}))
        made.agent_reports.set(status(name))
    made.set_pod(asking("usual", cpu="4", mib=500, node="n0"))
    return made


def asking(name: str, *, cpu: str, mib: int | None = None, node: str = "", **more: Any) -> Pod:
    """Return a pod that requests CPU, and so much of a card."""
    amounts = {"cpu": cpu} if mib is None else {"cpu": cpu, "nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    if node and mib is not None:
        return allocated(name, node=node, memory=mib, containers=containers)
    return pod(name, containers=containers, **more)


def placed(made: ClusterState, asks: Pod) -> Scheduled:
    """Return where a pod goes, by both ways; nothing is reserved."""
    found = finish(cycle_of(made).dry_run(asks)).result
    again = finish(schedule(made, asks))
    forget(made, asks)
    assert isinstance(found, Scheduled)
    assert isinstance(again, Scheduled)
    assert (found.node, found.note) == (again.node, again.note)
    return found


def test_a_pod_with_much_cpu_leaves_a_node_whose_cards_need_it() -> None:
    """Although another node is fuller; the note says why, and what a small pod gets there."""
    made = cluster()
    large = placed(made, asking("large", cpu="8", mib=100))
    assert large.node == "n1"
    assert "2 nodes fit(n1:" in large.note
    left = "leaves 0.0 free cards there without CPU or memory, leaves 0.90 of the card that it shares"
    assert large.note.endswith(f"; {left}")
    small = placed(made, asking("small", cpu="100m", mib=100))
    assert small.node == "n0"
    assert "leaves" not in small.note


def test_a_node_may_be_shown_later_than_its_cards() -> None:
    """The watches of both are not in step; pods that were tried in between are placed as if it had been there."""
    made = state()
    made.agent_reports.set(status("n0"))
    asks = asking("large", cpu="8", mib=100)
    assert not isinstance(finish(schedule(made, asks)), Scheduled)
    made.set_node(node("n0", status={"allocatable": {"cpu": "16", "memory": "256Gi", "pods": "110"}}))
    assert isinstance(finish(schedule(made, asks)), Scheduled)
    assert made.workload.mix is not None


def test_a_pod_without_cards_leaves_them_the_cpu() -> None:
    """It goes where there is enough, or where there are no cards; of equal nodes, where the least is free."""
    made = cluster()
    assert placed(made, asking("web", cpu="8")).node == "n1"
    made.set_node(node("plain"))
    made.set_node(node("tight", status={"allocatable": {"cpu": "9", "memory": "256Gi", "pods": "110"}}))
    assert placed(made, asking("web", cpu="8")).node == "tight"


def test_a_pod_without_cards_is_placed_where_nothing_is_known_of_cpu() -> None:
    """As long as no node with cards says how much it has, nothing counts as stranded."""
    made = state()
    made.set_node(node("n0", status={"allocatable": {"pods": "110"}}))
    made.agent_reports.set(status("n0"))
    assert placed(made, pod("web", containers=[{"name": "main"}])).node == "n0"


@pytest.mark.parametrize("disregarded", ["weight", "spread"])
def test_stranded_cards_can_be_disregarded(disregarded: str) -> None:
    """With weight 0 the fuller node counts, and the number of pods for one without cards; with `spread` always."""
    made = cluster(stranded=0.0) if disregarded == "weight" else cluster()
    policy = {"hami.io/node-scheduler-policy": "spread"} if disregarded == "spread" else {}
    assert placed(made, asking("web", cpu="1", annotations=policy)).node == "n1"
    made.set_pod(pod("other", node="n1", phase="Running"))
    made.set_pod(pod("another", node="n1", phase="Running"))
    assert placed(made, asking("web", cpu="8", annotations=policy)).node == "n0"
    large = placed(made, asking("large", cpu="8", mib=100, annotations=policy))
    assert large.node == ("n1" if disregarded == "spread" else "n0")
    assert "leaves" not in large.note


@pytest.mark.parametrize(("policy", "chosen"), [("binpack", "n1"), ("spread", "n0")])
def test_a_small_pod_goes_where_its_card_has_just_enough_room(policy: str, chosen: str) -> None:
    """Which card of a node that would be depends on the policy for cards; n0 is fuller as a whole."""
    made = state()
    for name in ("n0", "n1"):
        made.set_node(node(name))
        made.agent_reports.set(status(name))
    for number, (name, mib, card) in enumerate([("n0", 500, 0), ("n0", 500, 1), ("n1", 800, 0)]):
        made.set_pod(allocated(f"runs{number}", node=name, memory=mib, card=card))
    asks = asking("asks", cpu="1m", mib=200, annotations={CARD_POLICY: policy})
    assert placed(made, asks).node == chosen


async def test_the_extender_scores_nodes_alike() -> None:
    """kube-scheduler gets the best score for the same node; by the cards alone for a pod that is not known yet."""
    made, large = cluster(), asking("large", cpu="8", mib=100)
    verbs, args = extending(made, Bindings()), Args.of_pod(large, ("n0", "n1"))
    assert {each.host: each.score for each in await verbs.prioritize(args)} == {"n0": 10, "n1": 0}
    cache(verbs, large)
    assert {each.host: each.score for each in await verbs.prioritize(args)} == {"n0": 0, "n1": 10}


def test_models_on_which_others_depend_are_kept_for_them() -> None:
    """A pod for which every model will do gets another one, though its node is empty; also once the mix has changed."""
    made = state()
    for name, model in (("n0", "H100"), ("n1", "T4")):
        cards = tuple(Card(f"GPU-{name}-{index}", index, 1000, slots=4, model=model) for index in range(2))
        made.set_node(node(name))
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, cards))))
    made.set_pod(asking("any", cpu="1", mib=500, node="n0"))
    asks = asking("asks", cpu="1", mib=1000)
    assert placed(made, asks).node == "n0"
    chooses = asking("chooses", cpu="1", mib=400, node="n0")
    chooses.metadata.annotations[USE_TYPES] = "H100"
    made.set_pod(chooses)
    assert placed(made, asks).node == "n1"
