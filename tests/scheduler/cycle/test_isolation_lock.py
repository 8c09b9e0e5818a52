"""Pods share a card only with pods of the same isolation (`allocation.isolation_policy: dynamic`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.errors import MalformedRecordError
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.names import ALLOCATION
from allocation.reasons import CardReason, PodReason
from allocation.settings import AllocationSettings, IsolationPolicy
from allocation.sharing import SharingRules
from allocation.steps import finish
from allocation.wire.record import decode, encode
from allocation.wire.resize_record import Size
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle import evaluation
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gpu_requirements import GpuRequirements
from scheduler.resize import evaluation as resizes
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import Clock, allocated, node, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.driving import Driver
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.extending import extending, filtered, reasons
from tests.scheduler.support.preemption_scene import Scene
from tests.scheduler.support.scheduling import cycle_of, schedule

if TYPE_CHECKING:
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

MPS, HAMI_CORE = Isolation.MPS, Isolation.HAMI_CORE
LOCKED = "CardModeLocked"


def cluster(*nodes: str, policy: IsolationPolicy = "dynamic", **more: Any) -> ClusterState:
    """Return nodes with one card of four slots each, which can enforce whatever pods choose."""
    made = state(settings=AllocationSettings(isolation_policy=policy), **more)
    for name in nodes:
        made.set_node(node(name))
        report(made, name, Card(f"GPU-{name}-0", 0, 1000, slots=4))
    return made


def report(made: ClusterState, name: str, *cards: Card) -> None:
    """Report the cards of a node."""
    inventory = status_of(NodeInventory(name, cards))
    inventory.isolation = list(Isolation)
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), inventory, Spec(name)))


def decided(made: ClusterState, asks: Pod) -> str:
    """Return the node that a pod gets, or why it gets none."""
    result = finish(schedule(made, asks))
    return result.node if isinstance(result, Scheduled) else result.note if isinstance(result, Unschedulable) else ""


def on(made: ClusterState, isolation: Isolation, asks: Pod) -> evaluation.Evaluation:
    """Return the evaluation of node n1 for a pod as if its isolation was this one."""
    found = cycle_of(made).requirements(asks)
    assert isinstance(found, GpuRequirements)
    request = msgspec.structs.replace(found.request, isolation=isolation)
    requirements = msgspec.structs.replace(found, request=request)
    return evaluation.evaluate_node(made, requirements, "n1", made.requirements.headroom(asks))


def test_a_card_is_locked_to_the_isolation_of_its_pods_until_it_is_idle() -> None:
    """Another isolation waits, the same fits, and a card that is idle again fits all."""
    made = cluster("n1")
    running = allocated("a", node="n1", memory=100, isolation=MPS)
    made.set_pod(running)
    assert f"1/1 {LOCKED}" in decided(made, pod("b", memory=100))
    assert "the pod has isolation none, and pods of different isolations share no card" in decided(
        made, pod("c", memory=100)
    )
    assert on(made, MPS, pod("d", memory=100)).scores
    assert not on(made, HAMI_CORE, pod("d", memory=100)).scores
    made.drop_pod(running)
    assert on(made, HAMI_CORE, pod("d", memory=100)).scores
    assert decided(made, pod("b", memory=100)) == "n1"


def test_with_the_static_policy_any_isolations_share_a_card() -> None:
    """The default."""
    assert AllocationSettings().isolation_policy == "static"
    made = cluster("n1", policy="static")
    made.set_pod(allocated("a", node="n1", memory=100, isolation=MPS))
    assert decided(made, pod("b", memory=100)) == "n1"


def test_the_policy_counts_the_pods_that_run_when_it_changes() -> None:
    """Cards with pods of several isolations take no pod until the pods of all but one have ended."""
    made = cluster("n1", policy="static")
    first, second = (
        allocated(name, node="n1", memory=100, isolation=each) for name, each in (("a", MPS), ("b", Isolation.NONE))
    )
    made.set_pod(first)
    made.set_pod(second)
    made.ledger.set_rules(SharingRules(locks_isolation=True))
    assert LOCKED in decided(made, pod("c", memory=100))
    assert not on(made, MPS, pod("c", memory=100)).scores
    made.drop_pod(first)
    assert decided(made, pod("c", memory=100)) == "n1"
    made.ledger.set_rules(SharingRules())
    assert made.ledger.difference("n1") == ""


def test_a_restart_locks_the_same_cards() -> None:
    """The isolation is in the allocation, which only the scheduler writes. An older one has isolation none."""
    text = encode(Allocation("n1", {"main": (CardShare("GPU-n1-0", 0, 100, 0),)}, isolation=MPS))
    assert '"isolation":"mps"' in text
    assert decode(text).isolation is MPS
    old = '{"v":1,"node":"n1","containers":{"main":[{"uuid":"GPU-n1-0","index":0,"memoryMiB":100,"cores":0}]}}'
    assert decode(old).isolation is Isolation.NONE
    assert encode(decode(old)) == old, (
        "an allocation without isolation is written as ever, so that it can be rolled back"
    )
    with pytest.raises(MalformedRecordError, match="isolation"):
        decode(old.replace('"v":1', '"v":1,"isolation":"vgpu"'))
    running = pod("a", memory=100, node="n1", phase="Running", annotations={ALLOCATION: text})
    restarted = state(settings=AllocationSettings(isolation_policy="dynamic"))
    restarted.set_pod(running)  # before its node is known
    restarted.set_node(node("n1"))
    report(restarted, "n1", Card("GPU-n1-0", 0, 1000))
    assert LOCKED in decided(restarted, pod("b", memory=100))


def test_what_is_placed_has_the_isolation_of_the_pod() -> None:
    """Also for a GpuClaim, whose containers share its cards."""
    made = cluster("n1")
    one = claim("one", exclusivity="Shared", count=1)
    made.set_claim(one)
    for asks in (pod("a", memory=100), claiming("b", one)):
        found = on(made, MPS, asks)
        assert found.allocation is not None
        assert found.requirements.allocation(found.allocation).isolation is MPS
        assert {charge.isolation for charge in found.charges} == {MPS}


def test_a_static_allocation_has_the_isolation_of_its_pod() -> None:
    """It need not name it, and must name no other one. On a locked card it waits."""
    made = cluster("n1")
    share = CardShare("GPU-n1-0", 0, 100, 0)
    plain, named = (Allocation("n1", {"main": (share,)}, isolation=each) for each in (Isolation.NONE, MPS))
    asks = [pod("p", memory=100, annotations={ALLOCATION: encode(each)}) for each in (plain, named)]
    for each in asks:
        found = on(made, MPS, each)
        assert found.allocation is not None
        assert found.allocation.isolation is MPS
        assert {charge.isolation for charge in found.charges} == {MPS}
    assert f"annotation {ALLOCATION} has isolation mps, and the pod has none" in decided(made, asks[1])
    made.set_pod(allocated("a", node="n1", memory=100, isolation=HAMI_CORE))
    assert "card GPU-n1-0 on node n1 is locked to isolation hami-core, not none" in decided(made, asks[0])


def test_a_resized_pod_keeps_its_isolation_and_its_place() -> None:
    """On a card that it locks, and on a node that has no place for another pod."""
    made = cluster("n1")
    running = allocated("a", node="n1", memory=100, isolation=MPS)
    made.set_pod(running)
    made.ledger.set_rules(SharingRules(most_pods=1, locks_isolation=True))
    change = resizes.evaluate(made, running, running.metadata.annotations, {"main": Size(500)})
    assert change is not None
    assert [(each.memory_mib, each.isolation) for each in change.adjustment.charges] == [(500, MPS)]
    assert change.after.isolation is MPS
    assert made.ledger.difference("n1") == ""


def test_instances_are_not_locked() -> None:
    """An instance has one pod, and the card it is on takes instances of any isolation."""
    made = cluster("n1")
    instances = (instance(0, "1g.5gb", start, node="n1") for start in range(2))
    report(made, "n1", mig_card(0, node="n1", by="agent"), *instances)
    first = on(made, Isolation.MIG, pod("a", memory=100))
    assert first.allocation is not None
    made.ledger.assume("uid-a", "n1", first.charges)
    assert decided(made, pod("b", memory=100)) == "n1"
    assert PodReason.MigInstanceAsked in decided(made, pod("c", memory=100)), "of the same card"


async def test_pods_of_another_isolation_are_preempted() -> None:
    """All that lock the card, and no more."""
    clock = Clock()
    scene = Scene(clock=clock, driver=Driver(cluster("n1", "n2", clock=clock)))
    scene.run("a@n1", "b@n1", memory=100, isolation=MPS)
    scene.run("c@n2", memory=1000, priority=5)
    scene.driver.add(pod("high", memory=100, priority=10))
    assert await scene.look() == []
    assert scene.hold_of("high") == "n1"
    assert sorted(scene.evictor.evicted) == ["a", "b"]
    for name in "ab":
        scene.driver.end(name)
    assert await scene.driver.settle() == ["high"]


async def test_a_pod_that_waits_is_scheduled_when_the_card_is_idle() -> None:
    """The end of the last pod of another isolation is what helps."""
    driver = Driver(cluster("n1"))
    running = allocated("a", node="n1", memory=100, isolation=MPS)
    driver.running["a"] = running
    driver.state.set_pod(running)
    driver.add(pod("b", memory=100))
    assert await driver.settle() == []
    driver.end("a")
    assert await driver.settle() == ["b"]


def test_the_extender_and_the_explanation_give_the_reason() -> None:
    """For the card, after that of its model and before that of its UUID."""
    made = cluster("n1", "n2", has_queue=False)
    made.set_pod(allocated("a", node="n1", memory=100, isolation=MPS))
    answer = filtered(extending(made), pod("b", memory=100), "n1", "n2")
    assert answer["nodenames"] == ["n2"]
    assert reasons(answer) == {"n1": f"1/1 {LOCKED}"}
    avoided = pod("b", memory=100, annotations={"nvidia.com/nouse-gpuuuid": "GPU-n1-0,GPU-n2-0"})
    shown = {each.name: each.counts for each in explained(made, avoided).nodes}
    assert shown == {"n1": {LOCKED: 1}, "n2": {CardReason.CardUuidMismatch.name: 1}}
    other_type = pod("c", memory=100, annotations={"nvidia.com/use-gputype": "H100"})
    assert set(explained(made, other_type).nodes[0].counts) == {CardReason.CardTypeMismatch.name}
