"""The pods of a gang get nodes together or not at all, and nothing is reserved for them while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from allocation.steps import Steps
from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.loop import Loop
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, allocated, node, pod, state, status
from tests.scheduler.support.gang_loop import NOTHING, loop_of
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.volume_binding import until

WHOLE = 1000
"""The MiB of a card."""


class RecordingBinder:
    """Binds every pod, except those that a test has it refuse, in the dry run or afterwards."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.rehearsed: list[str] = []
        self.refuses_rehearsal: set[str] = set()
        self.refuses: dict[str, int] = {}
        """How often the Binding of a pod is refused."""

    def needs_lock(self, _: Scheduled) -> bool:
        """Return False."""
        return False

    async def rehearse(self, pod: Pod, _: Scheduled) -> str:
        """Return the refusal of a pod's Binding, if any."""
        await asyncio.sleep(0)
        self.rehearsed.append(pod.metadata.name)
        return "a policy says no" if pod.metadata.name in self.refuses_rehearsal else ""

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result:
        """Bind a pod unless it is to be refused."""
        await asyncio.sleep(0)
        name = pod.metadata.name
        if self.refuses.get(name, 0) > 0:
            self.refuses[name] -= 1
            return Result(Outcome.REFUSED, "a quota says no")
        self.bound[name] = chosen.node
        return Result(Outcome.BOUND)


class CountingCycle(SchedulingCycle):
    """A cycle that notes which pods are tried."""

    def __init__(self, made: ClusterState) -> None:
        super().__init__(made)
        self.tried: list[str] = []

    def schedule(self, pod: Pod, *, explain: bool = True) -> Steps[ScheduleResult | None]:
        """Schedule a pod."""
        self.tried.append(pod.metadata.name)
        return super().schedule(pod, explain=explain)


def member(name: str, gang: str = "train", size: int = 4, *, memory: int = WHOLE, **more: object) -> Pod:
    """Return a pod of a gang that asks for one card."""
    annotations = {"gpu.scheduling/gang-min-members": str(size)} if size else {}
    return pod(name, memory=memory, labels={"gpu.scheduling/gang": gang}, annotations=annotations, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    made: ClusterState,
    binder: RecordingBinder,
    cycle: SchedulingCycle | None = None,
    *,
    recorder: Recorder | None = None,
) -> AsyncIterator[Loop]:
    """Run the loop for a state."""
    loop = loop_of(made, cycle or cycle_of(made), binder, concurrent_binds=8, recorder=recorder)
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        loop.abandon()
        await loop.drain(5)


def waits(made: ClusterState, count: int) -> Callable[[], bool]:
    """Return the condition that `count` pods wait as unschedulable."""
    return lambda: made.queue.depths()["unschedulable"] == count


async def test_a_gang_waits_until_enough_of_its_pods_exist() -> None:
    """Three of four pods wait although there is room; with the fourth, all are bound."""
    made, binder = state("n1", cards=4), RecordingBinder()
    async with running(made, binder):
        for index in range(3):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["backoff"] == 3)
        assert not list(made.ledger.reservations())
        made.set_pod(member("m3"))
        await until(lambda: len(binder.bound) == 4)
    assert sorted(binder.rehearsed) == ["m0", "m1", "m2", "m3"]


async def test_a_pod_says_that_it_waits_for_others_after_a_second() -> None:
    """Before that its controller may still be creating them. No event but another pod of the gang helps."""
    clock, binder = Clock(), RecordingBinder()
    made = state("n1", clock=clock)
    async with running(made, binder):
        made.set_pod(member("m0"))
        await until(lambda: made.queue.depths()["backoff"] == 1)
        entry = made.queue.get("uid-m0")
        assert entry is not None
        assert entry.published == ""
        clock.now += 1
        await until(waits(made, 1))
        expected = "GangIncomplete: gang default/train needs 4 pods, and fewer exist: create the others"
        assert entry.published == expected
        position = made.queue.position("uid-m0")
        assert position is not None
        assert position.events == ("gang_changed",)


async def test_nothing_is_reserved_for_a_gang_that_does_not_fit_as_a_whole() -> None:
    """Four pods and three cards: none is reserved, so a single pod gets one; when two more come, all run."""
    made, binder = state("n1", cards=3), RecordingBinder()
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(waits(made, 4))
        assert not list(made.ledger.reservations())
        entry = made.queue.get("uid-m0")
        assert entry is not None
        assert entry.published.startswith(
            "3 of the 4 pods that gang default/train needs have a place; pod default/m3: "
        )
        made.set_pod(pod("single", memory=WHOLE))
        await until(lambda: "single" in binder.bound)
        made.set_node(node("n2"))
        made.agent_reports.set(status("n2", cards=2))
        await until(lambda: len(binder.bound) == 5)


async def test_of_two_gangs_that_both_nearly_fit_one_runs() -> None:
    """Two gangs of four on six cards: the older one gets four, and the other none until four are free."""
    made, binder = state("n1", "n2", "n3"), RecordingBinder()
    async with running(made, binder):
        for index in range(4):
            for gang in ("a", "b"):
                made.set_pod(member(f"{gang}{index}", gang))
        await until(lambda: len(binder.bound) == 4)
        await until(waits(made, 4))
        assert len({name[0] for name in binder.bound}) == 1
        assert len(list(made.ledger.reservations())) == 4
        first = next(iter(binder.bound))[0]
        for name in [each for each in binder.bound if each.startswith(first)]:
            made.drop_pod(member(name, first))
        await until(lambda: len(binder.bound) == 8)


async def test_a_pod_that_a_policy_refuses_keeps_all_of_its_gang_from_being_bound() -> None:
    """The dry run finds out, so that nothing is bound and nothing stays reserved; single pods go on."""
    made, binder = state("n1", cards=4), RecordingBinder()
    binder.refuses_rehearsal = {"m2"}
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.rehearsed) == 4 and not list(made.ledger.reservations()))
        assert not binder.bound
        gang = made.gangs.of("uid-m0")
        assert gang is not None
        await until(lambda: gang.pause_until > made.queue.clock() and not gang.is_committing)


async def test_a_pod_whose_binding_is_refused_after_others_were_bound_keeps_its_card() -> None:
    """A race that the dry run cannot see: its Binding is written again, and its card is not given away meanwhile.

    Its event says so.
    """
    made, binder, recorder = state("n1", cards=4), RecordingBinder(), Recorder(NOTHING, component="", instance="")
    binder.refuses = {"m1": 2}
    async with running(made, binder, recorder=recorder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 3)
        assert len(list(made.ledger.reservations())) == 4
        made.set_pod(pod("single", memory=WHOLE))
        await until(lambda: len(binder.bound) == 4)
        assert "single" not in binder.bound
    warning = next(each.event for each in recorder.recent if each.event.type != "Normal")
    note = "the other pods of gang default/train are bound, and this one is not: a quota says no; trying again"
    assert (warning.regarding.name, warning.type, warning.reason) == ("m1", "Warning", "GangIncomplete")
    assert (warning.action, warning.note) == ("Binding", note)


async def test_an_elastic_gang_begins_with_as_many_pods_as_fit() -> None:
    """Of five pods two are necessary, and three fit: they are bound, and the others follow one by one."""
    made, binder = state("n1", cards=3), RecordingBinder()
    async with running(made, binder):
        for index in range(5):
            made.set_pod(member(f"m{index}", size=2))
        await until(lambda: len(binder.bound) == 3)
        await until(waits(made, 2))
        gone = next(iter(binder.bound))
        made.drop_pod(member(gone, size=2))
        await until(lambda: len(binder.bound) == 4)


async def test_a_pod_in_the_place_of_a_failed_one_completes_its_gang() -> None:
    """Of four pods one fails, and its replacement needs no others than those that run; one that succeeded counts."""
    made, binder = state("n1", cards=4), RecordingBinder()
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 4)
        made.set_pod(member("m0", phase="Succeeded", node="n1"))
        made.set_pod(member("m1", phase="Failed", node="n1"))
        made.set_pod(member("m4"))
        await until(lambda: "m4" in binder.bound)


async def test_what_an_earlier_leader_left_undone_comes_first() -> None:
    """Two of four pods have nodes when a term begins: the gang is completed before an older pod gets a card."""
    made, binder = state("n1", cards=4), RecordingBinder()
    labels, annotations = {"gpu.scheduling/gang": "train"}, {"gpu.scheduling/gang-min-members": "4"}
    for index in range(2):
        bound = allocated(f"m{index}", node="n1", memory=WHOLE, card=index, labels=labels)
        bound.metadata.annotations.update(annotations)
        made.set_pod(bound)
    made.set_pod(pod("older", memory=WHOLE, created="2025-01-01T00:00:00Z"))
    made.set_pod(pod("important", memory=WHOLE, priority=1000))
    made.set_pod(member("m2"))
    made.set_pod(member("m3"))
    async with running(made, binder):
        await until(lambda: len(binder.bound) == 2)
        await until(waits(made, 2))
    assert sorted(binder.bound) == ["m2", "m3"]


async def test_a_gang_without_a_size_is_a_preference() -> None:
    """Its pods wait for no other."""
    made, binder = state("n1"), RecordingBinder()
    async with running(made, binder):
        made.set_pod(member("m0", size=0))
        await until(lambda: "m0" in binder.bound)


async def test_all_nodes_of_a_gang_are_in_one_block() -> None:
    """Rack b has room for the gang, and rack a for one pod more than for the gang's first one."""
    made, binder = state(), RecordingBinder()
    for name, rack, cards in (("a1", "a", 2), ("a2", "a", 1), ("b1", "b", 2), ("b2", "b", 2)):
        made.set_node(node(name, metadata={"name": name, "labels": {"rack": rack}}))
        made.agent_reports.set(status(name, cards=cards))
    async with running(made, binder):
        for index in range(4):
            each = member(f"m{index}")
            each.metadata.annotations["gpu.scheduling/gang-block"] = "rack"
            made.set_pod(each)
        await until(lambda: len(binder.bound) == 4)
    assert {each[0] for each in binder.bound.values()} == {"b"}


async def test_an_event_has_a_waiting_gang_decided_once() -> None:
    """However many pods it has: the first of them leads the others."""
    made, binder = state("n1", cards=1), RecordingBinder()
    cycle = CountingCycle(made)
    async with running(made, binder, cycle):
        for index in range(20):
            made.set_pod(member(f"m{index}", size=20))
        await until(waits(made, 20))
        cycle.tried.clear()
        made.queue.notify(ClusterEvent.POD_REMOVED)
        await until(lambda: len(cycle.tried) == 2 and waits(made, 20)())
        await asyncio.sleep(0.05)
        assert cycle.tried == ["m0", "m1"]
