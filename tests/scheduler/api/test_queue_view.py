"""All queues, as `GET /api/queues` returns them: shares, entitlements, what waits, and in which order."""

import msgspec
import pytest

from allocation.names import QUEUE
from scheduler.api import queue_view
from scheduler.api.queue_types import QueuesView, QueueView
from scheduler.objects import Pod
from scheduler.queue.entry import Rejected
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import namespace, node, pod, state, status
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.queued import charged


def by_name(made: ClusterState) -> dict[str, QueueView]:
    """Return the queues by name."""
    return {each.name: each for each in queue_view.view(made).queues}


def site(*pods: Pod) -> ClusterState:
    """Return two cards of 1000 MiB, queues of weight 3 and 1, and these pods."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("team-a", weight=3, limits={"nvidia.com/gpumem": 900}, maxInstances=5))
    made.limits.set_queue(gpu_queue("team-b"))
    for each in pods:
        made.set_pod(each)
    return made


def test_a_queue_has_its_share_its_entitlement_and_its_pods() -> None:
    """The share is that of memory, 500 of 2000 MiB; one slot of eight is less."""
    made = site(
        charged("a", memory=500, queue="team-a"),
        pod("second", memory=10, labels={QUEUE: "team-a"}, created="2026-01-02T00:00:00Z"),
        pod("first", memory=10, labels={QUEUE: "team-a"}),
        pod("b", memory=10, labels={QUEUE: "team-b"}),
    )
    assert by_name(made)["team-a"] == QueueView(
        name="team-a",
        exists=True,
        weight=3,
        priority=0,
        suspended=False,
        limits={"nvidia.com/gpumem": 900},
        max_instances=5,
        reclaim="Never",
        allocated={"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 0, "nvidia.com/gpu": 1, "cpu": 0, "memory": 0},
        share=0.25,
        dominant_resource="nvidia.com/gpumem",
        weighted_share=0.25 / 3,
        entitlement=0.75,
        overused=False,
        underused=True,
        excess_cards=-1.0,
        running=1,
        waiting=2,
        next=("default/first", "default/second"),
    )


def test_queues_come_in_the_order_in_which_cards_are_offered_to_them() -> None:
    """By tier, then by weighted share: 900 MiB of weight 3 come before 400 of weight 1."""
    made = site(charged("a", memory=900, queue="team-a"), charged("b", memory=400, queue="team-b", card=1))
    made.limits.set_queue(gpu_queue("urgent", priority=5))
    made.set_pod(charged("u", memory=600, queue="urgent", card=1))
    shown = queue_view.view(made)
    assert shown.fair_sharing
    assert [each.name for each in shown.queues] == ["urgent", "team-a", "team-b"]


def test_a_namespace_whose_pods_name_no_queue_has_one_of_its_own() -> None:
    """It needs no GpuQueue, and competes with weight 1."""
    made = site(charged("own", memory=600, queue="namespace/default"))
    own = by_name(made)["namespace/default"]
    assert (own.exists, own.weight, own.running, own.entitlement) == (True, 1, 1, 1.0)
    assert own.overused is False  # alone, it is entitled to everything


def test_a_queue_that_does_not_exist_is_shown_with_the_pods_that_wait_for_it() -> None:
    """Its name may be a slip of the pen."""
    ghost = by_name(site(pod("lost", memory=10, labels={QUEUE: "ghost"})))["ghost"]
    assert (ghost.exists, ghost.waiting, ghost.next) == (False, 1, ("default/lost",))


def test_without_gpu_queues_there_is_no_fair_sharing() -> None:
    """The shares are shown all the same: they count from the first GpuQueue on."""
    made = state("n1")
    made.set_pod(charged("own", memory=500, queue=""))
    assert queue_view.view(made).fair_sharing is False
    assert by_name(made)["namespace/default"].share == 0.25


def test_an_infinite_share_is_null_in_json() -> None:
    """A queue holds memory of a card, and no usable card is left."""
    made = site(charged("a", memory=500, queue="team-a"))
    made.agent_reports.set(status("n1", healthy=False))
    shown = by_name(made)["team-a"]
    assert (shown.share, shown.weighted_share, shown.overused) == (None, None, True)
    assert shown.excess_cards is None
    content = msgspec.json.decode(msgspec.json.encode(queue_view.view(made)), type=QueuesView)
    assert {each.name: each for each in content.queues}["team-a"] == shown


def test_pods_that_have_to_change_are_not_next() -> None:
    """No card that becomes free helps them, so the next pod of the queue is another one."""
    made = site(pod("held", memory=10, labels={QUEUE: "team-a"}), pod("next", memory=10, labels={QUEUE: "team-a"}))
    (entry,) = (each for each in made.queue if each.pod.metadata.name == "held")
    made.queue.add_unschedulable(entry, Rejected("PodHeld: …", frozenset({"PodHeld"}), is_held=True))
    assert by_name(made)["team-a"].next == ("default/next",)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_the_dominant_resource_may_be_one_of_the_nodes(resource: str) -> None:
    """A pod with much CPU or memory holds more of them than of the cards."""
    made = site()
    made.set_node(node("n1", status={"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}))
    made.limits.set_namespace(namespace("default"))
    big = charged("a", memory=10, queue="team-a")
    requests = {"cpu": {"cpu": "3"}, "memory": {"memory": "3Gi"}}[resource]
    resources = big.spec.containers[0].resources
    resources.requests = {**(resources.requests or {}), **requests}
    made.set_pod(big)
    shown = by_name(made)["team-a"]
    assert (shown.dominant_resource, shown.share) == (resource, 0.75)
