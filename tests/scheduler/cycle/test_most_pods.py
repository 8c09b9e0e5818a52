"""The most pods with cards on a node (`allocation.most_pods_per_node`), whatever way a pod gets its cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, Charge
from allocation.errors import OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import DRA_PREFIX, INSTANCE_PREFIX, LEASE_PREFIX, Ledger
from allocation.names import ALLOCATION
from allocation.settings import AllocationSettings
from allocation.sharing import SharingRules
from allocation.steps import finish
from allocation.wire.record import encode
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from scheduler.api import capacity_slice, capacity_stranded
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gpu_requirements import GpuRequirements
from scheduler.holds import PREFIX as HOLD_PREFIX
from scheduler.holds import Hold
from scheduler.patience import held_cards
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support import app_pods
from tests.scheduler.support.app_pods import app_pod, gpu_binding
from tests.scheduler.support.builders import Clock, allocated, node, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.driving import Driver
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.extending import extending, filtered, reasons
from tests.scheduler.support.gang_driving import GangDriver, member
from tests.scheduler.support.preemption_scene import Scene
from tests.scheduler.support.scheduling import cycle_of, schedule
from tests.scheduler.support.worlds import bound

if TYPE_CHECKING:
    from scheduler.api.capacity_types import Stranded
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

TWO = AllocationSettings(most_pods_per_node=2)
FULL = "NodeGpuPodsExhausted: it has as many pods with cards as allocation.most_pods_per_node allows (2)"


def cluster(*nodes: str, most: int = 2, **more: Any) -> ClusterState:
    """Return nodes with two cards of four slots each, and how many pods each may have."""
    return state(*nodes, settings=AllocationSettings(most_pods_per_node=most), **more)


def placed(made: ClusterState, asks: Pod) -> str:
    """Schedule and bind a pod; return its node, or why it has none."""
    made.set_pod(asks)
    result = finish(schedule(made, asks))
    if isinstance(result, Scheduled):
        made.set_pod(bound(asks, result), asks)
        return result.node
    assert isinstance(result, Unschedulable)
    return result.note


def test_the_third_pod_goes_to_another_node_and_the_fifth_waits() -> None:
    """The cap is two; slots, memory and compute are free everywhere. A pod that ends gives its place back."""
    made = cluster("n1", "n2")
    first = pod("p0", memory=100)
    nodes = [placed(made, first), *(placed(made, pod(f"p{number}", memory=100)) for number in range(1, 4))]
    assert sorted(nodes) == ["n1", "n1", "n2", "n2"]
    assert FULL in placed(made, pod("late", memory=100))
    made.drop_pod(first)
    assert placed(made, pod("later", memory=100)) == nodes[0]


def test_a_pod_without_cards_takes_no_place() -> None:
    """It is counted by its kubelet alone."""
    made = cluster("n1", most=1)
    assert placed(made, pod("plain")) == "n1"
    assert placed(made, pod("gpu", memory=100)) == "n1"
    assert placed(made, pod("plain-too")) == "n1"


@pytest.mark.parametrize("prefix", [LEASE_PREFIX, DRA_PREFIX, INSTANCE_PREFIX])
def test_what_is_kept_for_no_pod_takes_no_place(prefix: str) -> None:
    """Cards that a Lease closes, devices of other drivers, and MIG instances that wait for their pods."""
    ledger = Ledger(SharingRules(most_pods=1))
    ledger.set_node(NodeInventory("n1", (Card("GPU-0", 0, 1000), Card("GPU-1", 1, 1000))))
    ledger.record(f"{prefix}x", "n1", (Charge("GPU-0", 0, 0, 0, whole=True),))
    ledger.assume("a", "n1", (Charge("GPU-1", 100, 0, 1),))
    with pytest.raises(OverCapacityError, match="node n1 has 1 pods with cards, the most that it may have"):
        ledger.assume("b", "n1", (Charge("GPU-1", 100, 0, 1),))


def test_a_hold_takes_the_place_of_the_pod_that_it_is_for() -> None:
    """Otherwise the place that a preemption frees would go to the next pod that comes; without cards it takes none."""
    ledger = Ledger(SharingRules(most_pods=1))
    ledger.set_node(NodeInventory("n1", (Card("GPU-0", 0, 1000),)))
    ledger.record(f"{HOLD_PREFIX}cpu", "n1", ())
    assert not ledger.is_full(ledger.row("n1") or 0)
    ledger.record(f"{HOLD_PREFIX}gpu", "n1", (Charge("GPU-0", 100, 0, 1),))
    assert ledger.is_full(ledger.row("n1") or 0)


def test_a_pod_of_higher_rank_takes_the_place_of_a_hold_whose_cards_it_leaves_alone() -> None:
    """The hold of the lowest rank on the node ends, and no other."""
    made = cluster("n1", most=2)
    waiting = [pod(f"low-{priority}", memory=900, priority=priority) for priority in (1, 2)]
    for card, each in enumerate(waiting):
        made.set_pod(each)
        key, rank = made.fair_share.key(each), made.fair_share.pod_rank(each)
        made.holds.add(Hold(each.uid, key, rank, "n1", (Charge(f"GPU-n1-{card}", 900, 0, 1),), frozenset()), each)
    assert placed(made, pod("high", memory=50, priority=9)) == "n1"
    assert [hold.uid for hold in made.holds] == ["uid-low-2"]


def test_other_rules_hold_from_then_on() -> None:
    """What was ranked before is evaluated again, and pods that run stay, however many they are."""
    made = cluster("n1", most=2)
    assert [placed(made, pod(name, memory=100)) for name in "ab"] == ["n1", "n1"]
    assert FULL in placed(made, pod("c", memory=100))
    made.ledger.set_rules(SharingRules(most_pods=3))
    assert placed(made, pod("d", memory=100)) == "n1"
    made.ledger.set_rules(SharingRules(most_pods=1))
    assert "NodeGpuPodsExhausted" in placed(made, pod("e", memory=100))
    assert made.ledger.difference("n1") == ""
    made.ledger.set_rules(SharingRules())
    assert placed(made, pod("f", memory=100)) == "n1"


def test_a_difference_in_the_number_is_found() -> None:
    """By the comparison with a recount."""
    made = cluster("n1")
    placed(made, pod("a", memory=100))
    made.ledger.pods[made.ledger.row("n1") or 0] = 7
    assert made.ledger.difference("n1") == "node n1: it has 1 pods with cards, the ledger has 7"


def test_pods_with_claims_of_applications_and_static_allocations_count_and_are_refused() -> None:
    """Each of them takes a place, and a node without a free one rejects it."""
    made = state("n1", settings=msgspec.structs.replace(app_pods.settings("labelled"), most_pods_per_node=3))
    made.bindings.set(gpu_binding("b", "GPU-n1-0"))
    one = claim("one", exclusivity="Shared", count=1)
    made.set_claim(one)
    fixed = {ALLOCATION: encode(Allocation("n1", {"main": (CardShare("GPU-n1-1", 1, 100, 0),)}))}
    kinds = (
        lambda name: claiming(name, one),
        lambda name: app_pod(name, policy="single"),
        lambda name: pod(name, memory=100, annotations=fixed),
    )
    assert [placed(made, kind(f"a{number}")) for number, kind in enumerate(kinds)] == ["n1"] * 3
    made.bindings.set(gpu_binding("b2", "GPU-n1-1", app="other"))
    for number, kind in enumerate((kinds[0], lambda name: app_pod(name, "other"), kinds[2])):
        assert "NodeGpuPodsExhausted" in placed(made, kind(f"b{number}"))


def test_no_instance_is_created_for_a_pod_that_has_no_place() -> None:
    """A pod with an instance takes a place, as any other."""
    made = cluster("n1", cards=0, most=1)
    cards = (mig_card(0, node="n1"), instance(0, "1g.5gb", 0, node="n1"))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards)), Spec("n1")))
    assert placed(made, pod("a", memory=100)) == "n1"
    assert "NodeGpuPodsExhausted" in placed(made, pod("b", memory=100))
    assert not len(made.instance_requests)


async def test_a_gang_gets_as_many_places_of_a_node_as_there_are() -> None:
    """Its pods are counted one after the other; without enough places none is placed."""
    driver = GangDriver(cluster("n1", "n2", most=1))
    for name in "abc":
        driver.add(member(name, size=3, memory=100))
    assert await driver.settle() == []
    smaller = GangDriver(cluster("n1", "n2", most=1))
    for name in "ab":
        smaller.add(member(name, size=2, memory=100))
    assert sorted(await smaller.settle()) == ["a", "b"]
    assert {each.spec.node_name for each in smaller.running.values()} == {"n1", "n2"}


async def test_a_pod_is_preempted_for_its_place() -> None:
    """A card would be free; the place is held for the preemptor, so that no later pod takes it."""
    clock = Clock()
    scene = Scene(clock=clock, driver=Driver(cluster("n1", most=1, clock=clock)))
    scene.run("low@n1", memory=100)
    scene.driver.add(pod("high", memory=100, priority=10))
    assert await scene.look() == []
    assert (scene.evictor.evicted, scene.hold_of("high")) == (["low"], "n1")
    scene.driver.add(pod("next", memory=100))
    scene.driver.end("low")
    assert await scene.driver.settle() == ["high"]


async def test_a_pod_that_waits_is_scheduled_when_a_place_is_free() -> None:
    """The end of a pod is what helps, and only that."""
    driver = Driver(cluster("n1", most=1))
    driver.add(pod("a", memory=100))
    driver.add(pod("b", memory=100))
    assert await driver.settle() == ["a"]
    driver.end("a")
    assert await driver.settle() == ["b"]


def test_the_extender_refuses_the_same_nodes() -> None:
    """With the same reason."""
    made = cluster("n1", "n2", has_queue=False, most=1)
    made.set_pod(allocated("a", node="n1", memory=100))
    answer = filtered(extending(made), pod("b", memory=100), "n1", "n2")
    assert answer["nodenames"] == ["n2"]
    text = "it has as many pods with cards as allocation.most_pods_per_node allows (1)"
    assert reasons(answer) == {"n1": text}


def test_a_restart_counts_the_same() -> None:
    """From the pods alone: the setting of the new term holds, and pods beyond it stay."""
    running = [allocated(name, node="n1", memory=100) for name in "abc"]
    made = state(settings=TWO)
    for each in running:
        made.set_pod(each)  # before the node is known
    made.set_node(node("n1"))
    cards = tuple(Card(f"GPU-n1-{index}", index, 1000) for index in range(2))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards)), Spec("n1")))
    assert made.ledger.pods.item(made.ledger.row("n1") or 0) == 3
    assert FULL in placed(made, pod("d", memory=100))


def test_a_full_node_has_no_largest_slice_and_is_explained() -> None:
    """The largest slice is on the other node, however much of the full one is free."""
    made = cluster("n1", "n2", most=1)
    made.set_pod(allocated("a", node="n1", memory=1))
    made.set_pod(allocated("b", node="n2", memory=900))
    asks = pod("c", memory=100)
    assert finish(capacity_slice.largest(cycle_of(made), asks)) is None
    shown = explained(made, asks)
    assert [each.code for each in shown.nodes] == ["NodeGpuPodsExhausted"] * 2
    made.drop_pod(allocated("b", node="n2", memory=900))
    largest = finish(capacity_slice.largest(cycle_of(made), asks))
    assert largest is not None
    assert largest.node == "n2"


def test_places_are_held_for_a_pod_that_has_waited_too_long() -> None:
    """On a full node, once another namespace's pod there ends; which cards are free does not matter."""
    made = cluster("n1", most=1)
    made.set_pod(allocated("a", node="n1", memory=100, namespace="other"))
    asks = pod("b", memory=100)
    requirements = cycle_of(made).requirements(asks)
    assert isinstance(requirements, GpuRequirements)
    found = finish(held_cards.choose(made, asks, requirements, made.requirements.headroom(asks)))
    assert found is not None
    assert (found.node, found.awaited) == ("n1", {"uid-a"})


def test_what_is_free_on_a_full_node_is_stranded() -> None:
    """Because of the queue that has most of its places."""
    made = cluster("n1", "n2", most=3)
    for name, namespace in (("a", "red"), ("b", "blue"), ("c", "blue")):
        made.set_pod(allocated(name, node="n1", memory=100, namespace=namespace))
    made.set_pod(allocated("d", node="n2", memory=100))
    assert [(each.lacks, each.cards, each.memory_mib, [by.queue for by in each.by]) for each in stranded(made)] == [
        ("pods", 2, 1700, ["namespace/blue"])
    ]


def stranded(made: ClusterState) -> tuple[Stranded, ...]:
    """Return what is stranded on cards."""
    return finish(capacity_stranded.stranded(made))
