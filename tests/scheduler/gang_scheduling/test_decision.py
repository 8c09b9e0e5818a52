"""A decision about a gang changes nothing unless all of it have places, and no other decision sees its middle."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

from allocation.allocation import Charge
from allocation.inventory import Card, NodeInventory
from allocation.steps import advance, finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle import gang_order
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.holds import Hold
from tests.scheduler.gang_scheduling.test_all_or_nothing import WHOLE, member
from tests.scheduler.model.recount import counted
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.preemption_scene import Scene
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from scheduler.gangs.gang import Gang
    from scheduler.queue.entry import Entry
    from scheduler.state.cluster_state import ClusterState


def waiting(made: ClusterState) -> tuple[Gang, list[Entry]]:
    """Return the gang, and its pods that wait, taken out of the queue."""
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    return gang, made.queue.take(list(gang.waiting))


def holding(made: ClusterState, name: str, card: int) -> Hold:
    """Hold a card for a pod that waits."""
    waits = made.queue.pod(f"uid-{name}")
    assert waits is not None
    fits = made.ledger.inventory("n1")
    assert fits is not None
    charges = (Charge(fits.cards[card].uuid, WHOLE, 0, 1),)
    key, rank = made.fair_share.key(waits), made.fair_share.pod_rank(waits)
    hold = Hold(waits.uid, key, rank, "n1", charges, frozenset(), "preemption", 360.0)
    made.holds.add(hold, waits)
    return hold


def test_a_rejected_gang_leaves_everything_as_it_was() -> None:
    """The ledger, node resources, quotas, shares and the mix; and what is held for two of its pods is still held."""
    made = state("n1", cards=3)
    for index in range(4):
        made.set_pod(member(f"m{index}"))
    holds = {holding(made, name, card) for card, name in enumerate(("m0", "m3"))}
    before = deepcopy(counted(made))
    found = finish(GangCycle(cycle_of(made)).schedule(*waiting(made)))
    assert isinstance(found, RejectedGang)
    assert found.fitting == 2
    assert set(made.holds) == holds
    assert counted(made) == before


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_decision_that_is_abandoned_leaves_everything_as_it_was(steps: int) -> None:
    """After any number of its steps."""
    made = state("n1", cards=4)
    for index in range(4):
        made.set_pod(member(f"m{index}"))
    before = deepcopy(counted(made))
    deciding = GangCycle(cycle_of(made)).schedule(*waiting(made))
    for _ in range(steps):
        advance(deciding)
    deciding.close()
    assert counted(made) == before


def test_a_rehearsal_says_what_a_decision_would_do_and_reserves_nothing() -> None:
    """All four fit, and a card is held for one of them."""
    made = state("n1", cards=4)
    for index in range(4):
        made.set_pod(member(f"m{index}"))
    hold = holding(made, "m1", 2)
    before = deepcopy(counted(made))
    gang, entries = waiting(made)
    found = finish(GangCycle(cycle_of(made)).schedule(gang, entries, is_rehearsal=True))
    assert isinstance(found, ScheduledGang)
    assert len(found.members) == 4
    assert list(made.holds) == [hold]
    assert counted(made) == before


def test_a_pod_that_is_deleted_meanwhile_has_the_gang_decided_again() -> None:
    """Nothing stays reserved for the others."""
    made = state("n1", cards=4)
    pods = [member(f"m{index}") for index in range(4)]
    for each in pods:
        made.set_pod(each)
    deciding = GangCycle(cycle_of(made)).schedule(*waiting(made))
    while not made.node_cache.is_assumed("uid-m1"):
        advance(deciding)
    made.drop_pod(pods[1])
    assert finish(deciding) is None
    assert not list(made.ledger.reservations())


def test_if_the_largest_pods_first_is_a_bad_order_another_one_is_tried() -> None:
    """One card has much memory. The pair, which is first by cards, takes it, and then the other pod has no place."""
    made = state("n1", cards=1)
    cards = (Card("large", 0, 1000, slots=4), Card("small-1", 1, 500, slots=4), Card("small-2", 2, 500, slots=4))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards))))
    pair, alone = member("m0", size=2, memory=400), member("m1", size=2, memory=900)
    resources = pair.spec.containers[0].resources
    resources.limits = {**(resources.limits or {}), "nvidia.com/gpu": "2"}
    pair.metadata.annotations["hami.io/gpu-scheduler-policy"] = "spread"
    for each in (pair, alone):
        made.set_pod(each)
    gang, entries = waiting(made)
    cycle = GangCycle(cycle_of(made))
    by_cards, by_memory = finish(gang_order.orders(cycle._cycle, entries, lambda entry: entry.pod))
    assert [[entry.pod.metadata.name for entry in order] for order in (by_cards, by_memory)] == [
        ["m0", "m1"],
        ["m1", "m0"],
    ]
    rejected = finish(cycle._in_order(gang, by_cards, explain=True, is_rehearsal=True))
    assert isinstance(rejected, RejectedGang)
    assert isinstance(finish(cycle.schedule(gang, entries)), ScheduledGang)


async def test_no_pods_are_chosen_for_eviction_in_the_middle_of_a_decision() -> None:
    """Preemption waits for its turn, because what the gang has at the moment may be given back."""
    scene = Scene("n1")
    scene.run("low@n1")
    scene.driver.add(pod("high", memory=WHOLE, priority=10))
    await scene.driver.settle()
    async with scene.state.turn:
        looking = asyncio.create_task(scene.preemptor.look())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not scene.state.holds.nominations
    await looking
    assert scene.state.holds.nominations
