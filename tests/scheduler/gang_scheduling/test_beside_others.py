"""Gangs beside everything else that a scheduler does: pods that come late, failures, budgets, MIG, HAMi, claims."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import GANG
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.binding.binder import Result
from scheduler.consolidation.planner import NoPlan
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.gang_scheduling import gang_scheduler
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang
from scheduler.gangs.gang import GangKey
from scheduler.metrics.labels import Outcome
from scheduler.queue.queueing_hints import ClusterEvent
from tests.allocation.support.mig_cards import mig_card
from tests.scheduler.gang_scheduling.test_all_or_nothing import WHOLE, RecordingBinder, member, running, waits
from tests.scheduler.support.builders import Clock, allocated, node, pod, state, status
from tests.scheduler.support.gang_loop import loop_of
from tests.scheduler.support.preempting import planner_of
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.volume_binding import until

if TYPE_CHECKING:
    from allocation.steps import Steps
    from scheduler.cycle.result import Scheduled, ScheduleResult
    from scheduler.gangs.gang import Gang
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


class SlowBinder(RecordingBinder):
    """Binds pods of gangs only when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = asyncio.Event()

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result:
        """Wait, and bind."""
        if pod.metadata.labels:
            await self.allowed.wait()
        return await super().bind(pod, chosen)


def train(made: ClusterState) -> Gang:
    """Return the gang of most tests."""
    gang = made.gangs.get(GangKey("default", "train"))
    assert gang is not None
    return gang


async def test_a_pod_that_comes_while_its_gang_is_bound_waits_for_the_outcome() -> None:
    """It would be alone if the others were refused."""
    made, binder = state("n1", cards=6), SlowBinder()
    async with running(made, binder) as loop:
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.rehearsed) == 4)
        assert loop.being_bound == {f"uid-m{index}" for index in range(4)}
        made.set_pod(member("late"))
        made.set_pod(pod("other", memory=WHOLE))
        await until(lambda: "other" in binder.bound)
        await until(lambda: made.queue.depths()["backoff"] == 1)
        assert "late" not in binder.rehearsed
        assert made.ledger.reservation("uid-late") is None
        binder.allowed.set()
        await until(lambda: "late" in binder.bound)


async def test_a_gang_that_was_refused_pauses() -> None:
    """No event has it decided again before its pause is over."""
    clock, binder = Clock(), RecordingBinder()
    made = state("n1", cards=4, clock=clock)
    binder.refuses_rehearsal = {"m2"}
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: train(made).pause_until == clock.now + 10)
        await until(lambda: made.queue.depths()["backoff"] == 4)
        made.queue.wake([f"uid-m{index}" for index in range(4)])
        made.queue.notify(ClusterEvent.POD_REMOVED)
        clock.now += 9
        await asyncio.sleep(0.05)
        assert len(binder.rehearsed) == 4
        binder.refuses_rehearsal = set()
        clock.now += 1
        made.set_pod(member("m4"))
        await until(lambda: len(binder.bound) == 4)


async def test_a_gang_of_which_no_binding_succeeds_is_released_at_once() -> None:
    """Nothing is bound, so nothing has to be completed."""
    made, binder = state("n1", cards=4), RecordingBinder()
    binder.refuses = {f"m{index}": 1 for index in range(4)}
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: not any(binder.refuses.values()))
        await until(lambda: not list(made.ledger.reservations()))
        assert not binder.bound


@pytest.mark.parametrize("ends_by", ["timeout", "trust"])
async def test_a_binding_that_stays_refused_is_given_up(ends_by: str) -> None:
    """When the timeout of the gang is over, or this replica leads no more; the pods that are bound stay."""
    made, binder, is_trusted = state("n1", cards=4), RecordingBinder(), True
    binder.refuses = {"m1": 10_000}
    loop = loop_of(made, cycle_of(made), binder, concurrent_binds=8, is_trusted=lambda: is_trusted)
    running = asyncio.create_task(loop.run())
    begin = time.monotonic()
    for index in range(4):
        each = member(f"m{index}")
        each.metadata.annotations["gpu.scheduling/gang-timeout"] = "1s" if ends_by == "timeout" else "1h"
        made.set_pod(each)
    await until(lambda: len(binder.bound) == 3)
    assert len(list(made.ledger.reservations())) == 4
    is_trusted = ends_by != "trust"
    await until(lambda: made.ledger.reservation("uid-m1") is None)
    assert time.monotonic() - begin < 5
    assert len(list(made.ledger.reservations())) == 3
    running.cancel()
    loop.abandon()
    await loop.drain(5)


class NoVolumes:
    """A volume binder that has no volumes for one pod."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def bind(self, pod: Pod, _: Scheduled) -> Result | None:
        """Return the failure of a pod."""
        await asyncio.sleep(0)
        is_missing = pod.metadata.name == self._name
        return Result(Outcome.REFUSED, "no volume", reason="FailedScheduling") if is_missing else None


@pytest.mark.parametrize(("size", "bound"), [(4, 0), (3, 3)])
async def test_a_pod_without_its_volumes_keeps_a_gang_from_being_bound_if_it_is_necessary(
    size: int, bound: int
) -> None:
    """Nothing stays reserved for it, and for the others only if they are enough."""
    made, binder = state("n1", cards=4), RecordingBinder()
    loop = loop_of(made, cycle_of(made), binder, volumes=NoVolumes("m2"), concurrent_binds=8)
    running = asyncio.create_task(loop.run())
    for index in range(4):
        made.set_pod(member(f"m{index}", size=size))
    await until(lambda: train(made).pause_until > made.queue.clock())
    await until(lambda: len(list(made.ledger.reservations())) == bound)  # it is tried again by itself meanwhile
    assert len(binder.bound) == bound
    assert len(binder.rehearsed) == bound
    running.cancel()
    loop.abandon()
    await loop.drain(5)


async def test_a_single_pod_of_a_gang_is_not_rehearsed() -> None:
    """It takes the place of one that failed, so there is nothing to be half bound."""
    made, binder = state("n1", cards=4), RecordingBinder()
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 4)
        made.set_pod(member("m0", phase="Failed", node="n1"))
        made.set_pod(member("m4"))
        await until(lambda: "m4" in binder.bound)
    assert "m4" not in binder.rehearsed


async def test_pods_that_succeeded_count_until_they_are_deleted() -> None:
    """Afterwards a gang that is created again under the same name is complete by its own pods only."""
    made = state("n1", cards=4)
    for index in range(4):
        made.set_pod(member(f"m{index}", phase="Succeeded", node="n1"))
    assert train(made).placed == 4
    for index in range(3):
        made.drop_pod(member(f"m{index}", phase="Succeeded", node="n1"))
    assert train(made).placed == 1
    made.drop_pod(member("m3", phase="Succeeded", node="n1"))
    assert made.gangs.get(GangKey("default", "train")) is None


class Interrupted(SchedulingCycle):
    """A cycle in which the first pod changes while it is being scheduled."""

    def __init__(self, made: ClusterState) -> None:
        super().__init__(made)
        self.interrupted = False

    def schedule(self, pod: Pod, *, explain: bool = True) -> Steps[ScheduleResult | None]:
        """Schedule a pod, or find that it has changed."""
        result = yield from super().schedule(pod, explain=explain)
        if pod.metadata.name == "m3" and not self.interrupted:
            self.interrupted = True
            self.forget(pod)
            return None
        return result


async def test_a_gang_of_which_a_pod_changes_meanwhile_is_decided_again() -> None:
    """At once, whatever happens."""
    made, binder = state("n1", cards=4), RecordingBinder()
    async with running(made, binder, Interrupted(made)):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 4)


async def test_a_decision_waits_for_its_turn_and_is_charged_to_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """While pods are chosen to be evicted, no gang is decided."""
    made, binder = state("n1", cards=4), RecordingBinder()
    charged: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        made.queue, "charge", lambda entry, _, placed: charged.append((entry.pod.metadata.name, placed))
    )
    async with running(made, binder):
        async with made.turn:
            for index in range(4):
                made.set_pod(member(f"m{index}"))
            await asyncio.sleep(0.05)
            assert not list(made.ledger.reservations())
        await until(lambda: len(binder.bound) == 4)
    assert charged == [("m0", True)]


async def test_every_pod_of_a_gang_that_waits_for_cards_is_demand() -> None:
    """Of its queue, for which queues of lower tiers wait; and all its pods are tried as one kind."""
    made, binder = state("n1", cards=3), RecordingBinder()
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(waits(made, 4))
        (demand,) = made.queue.demands.values()
        assert (demand.pods, demand.amounts[0]) == (4, 4 * WHOLE)
        lanes = {entry.lane.key for entry in made.queue if entry.lane is not None}
        assert lanes == {("gang", "default", "train")}


async def test_pods_that_wait_for_others_are_one_lane() -> None:
    """However many they are, an event costs the number of gangs."""
    clock, binder = Clock(), RecordingBinder()
    made = state("n1", clock=clock)
    async with running(made, binder):
        for index in range(3):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["backoff"] == 3)
        clock.now += 1
        await until(waits(made, 3))
        assert {entry.lane.key for entry in made.queue if entry.lane is not None} == {("gang", "default", "train")}


async def test_one_decision_is_about_a_bounded_number_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of a larger gang follow."""
    monkeypatch.setattr(gang_scheduler, "MOST_MEMBERS", 3)
    made, binder = state("n1", cards=6), SlowBinder()
    async with running(made, binder) as loop:
        for index in range(6):
            made.set_pod(member(f"m{index}", size=2))
        await until(lambda: len(binder.rehearsed) > 0)
        assert len(loop.being_bound) <= 4
        binder.allowed.set()
        await until(lambda: len(binder.bound) == 6)


def test_a_gang_that_cannot_be_read_holds_its_pod() -> None:
    """Admission refuses such a pod; one that it did not see waits, and its condition names the annotation."""
    made = state("n1")
    wrong = member("m0")
    wrong.metadata.annotations["gpu.scheduling/gang-min-members"] = "many"
    made.set_pod(wrong)
    assert not made.gangs.waits_for_others(wrong)
    with pytest.raises(AllocationError, match=r"gang-min-members.* holds 'many': it must be a number of pods"):
        made.requirements.of(wrong)


def test_no_mig_instance_is_requested_for_a_gang_that_waits(mig_inventory: NodeInventory) -> None:
    """It would be kept from others."""
    made = state()
    made.set_node(node("n0"))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0"), status_of(mig_inventory)))
    for index in range(2):
        made.set_pod(member(f"m{index}", size=2, memory=100))
    found = finish(GangCycle(cycle_of(made)).schedule(train(made), made.queue.take(["uid-m0", "uid-m1"])))
    assert isinstance(found, RejectedGang)
    assert len(made.instance_requests) == 0
    made.set_pod(pod("single", memory=100))
    finish(cycle_of(made).schedule(pod("single", memory=100)))
    assert len(made.instance_requests) == 1


@pytest.fixture
def mig_inventory() -> NodeInventory:
    """A card that the agent partitions."""
    return NodeInventory("n0", (mig_card(0, by="agent"),))


def test_no_pods_are_moved_for_a_gang() -> None:
    """The plan for one pod would be of no use."""
    made = state("n1", cards=1)
    each = member("m0")
    made.set_pod(each)
    assert finish(planner_of(made).plan(each)) == NoPlan("the pods of its gang get nodes together")


async def test_a_replacement_goes_to_the_block_of_its_gang() -> None:
    """Although another block has more room."""
    made, binder = state(), RecordingBinder()
    for name, rack, cards in (("a1", "a", 3), ("b1", "b", 8)):
        made.set_node(node(name, metadata={"name": name, "labels": {"rack": rack}}))
        made.agent_reports.set(status(name, cards=cards))
    pods = [member(f"m{index}", size=2) for index in range(3)]
    for each in pods:
        each.metadata.annotations["gpu.scheduling/gang-block"] = "rack"
    pods[0].spec.node_selector = {"rack": "a"}
    async with running(made, binder):
        for each in pods[:2]:
            made.set_pod(each)
        await until(lambda: len(binder.bound) == 2)
        assert set(binder.bound.values()) == {"a1"}
        assert train(made).tried_block is None
        made.set_pod(msgspec.structs.replace(pods[1], status=msgspec.structs.replace(pods[1].status, phase="Failed")))
        made.set_pod(pods[2])
        await until(lambda: len(binder.bound) == 3)
    assert binder.bound["m2"] == "a1"


async def test_a_gang_that_is_created_again_may_leave_the_block_of_its_former_pods() -> None:
    """These are being deleted, and there is no room beside them; as ever, the block with the most room comes first."""
    made, binder = state(), RecordingBinder()
    for name, rack, cards in (("a1", "a", 2), ("b1", "b", 2), ("c1", "c", 1)):
        made.set_node(node(name, metadata={"name": name, "labels": {"rack": rack}}))
        made.agent_reports.set(status(name, cards=cards))
    keys = {"gpu.scheduling/gang-min-members": "2", "gpu.scheduling/gang-block": "rack"}
    for index in range(2):
        before = [
            allocated(f"old{index}", node="a1", memory=1000, card=index, labels={GANG: "train"}, deleted=deleted)
            for deleted in ("", "2026-01-01T01:00:00Z")
        ]
        for each in before:
            each.metadata.annotations.update(keys)
        made.set_pod(before[0])
        made.set_pod(before[1], before[0])
    async with running(made, binder):
        for index in range(2):
            each = member(f"m{index}", size=2)
            each.metadata.annotations["gpu.scheduling/gang-block"] = "rack"
            made.set_pod(each)
        await until(lambda: len(binder.bound) == 2)
    assert set(binder.bound.values()) == {"b1"}


def test_pods_that_are_being_bound_are_not_taken_out_of_the_queue() -> None:
    """They are not waiting any more."""
    made = state("n1")
    for index in range(2):
        made.set_pod(member(f"m{index}"))
    first = made.queue.pop_due()
    assert first is not None
    assert [entry.pod.metadata.name for entry in made.queue.take(["uid-m0", "uid-m1", "uid-gone"])] == ["m1"]
