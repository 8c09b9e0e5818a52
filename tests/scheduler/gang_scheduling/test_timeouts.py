"""A gang with a timeout waits no longer, and does not stay incomplete for longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from allocation.steps import advance
from scheduler.gang_scheduling import gang_keeper
from scheduler.gang_scheduling.gang_cycle import GangCycle
from scheduler.gang_scheduling.gang_keeper import GangKeeper
from scheduler.metrics.instruments import Metrics
from scheduler.pacing import Pacer
from scheduler.settings import GangSettings
from tests.scheduler.gang_scheduling.test_all_or_nothing import RecordingBinder, waits
from tests.scheduler.gang_scheduling.test_all_or_nothing import running as running_loop
from tests.scheduler.support.builders import Clock, allocated, pod, state
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.volume_binding import until

if TYPE_CHECKING:
    from cluster.events import Recorder
    from cluster.metadata import Reference
    from scheduler.objects import Pod
    from scheduler.preemption.evictor import Evictor
    from scheduler.state.cluster_state import ClusterState

LABELS = {"gpu.scheduling/gang": "train"}


class Noted:
    """Notes events and evictions in place of writing them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.evicted: list[str] = []

    def record(self, about: Reference, *, type: str, reason: str, action: str, note: str) -> None:  # noqa: A002
        """Note an event."""
        assert (type, action) == ("Warning", "Scheduling")
        self.events.append((reason, about.name))
        self.notes.append(note)

    async def end(self, pods: Sequence[Pod], *, reason: str, note: str) -> None:
        """Note evictions."""
        assert (reason, note) == ("GangIncomplete", self.notes[-1])
        self.evicted += sorted(each.metadata.name for each in pods)


def keys(timeout: str = "60s", size: int = 4) -> dict[str, str]:
    """Return the annotations of a pod of the gang."""
    return {"gpu.scheduling/gang-min-members": str(size), "gpu.scheduling/gang-timeout": timeout}


def keeper(made: ClusterState, noted: Noted) -> GangKeeper:
    """Return a keeper that writes nothing."""
    return GangKeeper(
        made,
        cast("Evictor", noted),
        recorder=cast("Recorder", noted),
        metrics=Metrics(),
        settings=GangSettings(),
        is_trusted=lambda: True,
    )


def running(name: str, annotations: dict[str, str], *, card: int) -> Pod:
    """Return a pod of the gang that runs."""
    made = allocated(name, node="n1", memory=10, card=card, labels=LABELS)
    made.metadata.annotations.update(annotations)
    return made


async def test_a_gang_that_waits_is_reported_and_pauses() -> None:
    """Once for each period of its timeout; nothing is reserved that would have to be released."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    for index in range(2):
        made.set_pod(pod(f"m{index}", memory=10, labels=LABELS, annotations=keys()))
    looks = keeper(made, noted)
    await looks.look()
    clock.now += 59
    await looks.look()
    assert noted.events == []
    clock.now += 1
    await looks.look()
    await looks.look()
    assert sorted(noted.events) == [("GangSchedulingTimeout", "m0"), ("GangSchedulingTimeout", "m1")]
    assert set(noted.notes) == {
        "gang default/train has waited 60 s, its timeout is 60 s: 0 of 4 pods have nodes; pausing for 10 s"
    }
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    assert gang.pause_until == clock.now + 10
    clock.now += 60
    await looks.look()
    assert len(noted.events) == 4
    assert noted.evicted == []


async def test_an_incomplete_gang_is_evicted_whole() -> None:
    """Two of four run and the others do not come: both are evicted, so that the gang can begin as a whole."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    for index in range(2):
        made.set_pod(running(f"m{index}", keys(), card=index))
    looks = keeper(made, noted)
    await looks.look()
    clock.now += 60
    await looks.look()
    assert noted.evicted == ["m0", "m1"]


async def test_without_a_timeout_an_incomplete_gang_stays() -> None:
    """However long it lasts."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    made.set_pod(running("m0", keys("0"), card=0))
    made.set_pod(pod("m1", memory=10, labels=LABELS, annotations=keys("0")))
    looks = keeper(made, noted)
    for _ in range(3):
        await looks.look()
        clock.now += 100_000
    assert (noted.evicted, noted.events) == ([], [])


async def test_a_gang_that_is_satisfied_in_time_is_left_alone() -> None:
    """The time begins again when it is not."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    made.set_pod(running("m0", keys(size=2), card=0))
    looks = keeper(made, noted)
    await looks.look()
    clock.now += 59
    made.set_pod(running("m1", keys(size=2), card=1))
    await looks.look()
    clock.now += 59
    made.drop_pod(running("m1", keys(size=2), card=1))
    await looks.look()
    clock.now += 59
    await looks.look()
    assert noted.evicted == []


async def test_a_gang_whose_size_becomes_smaller_is_decided_again() -> None:
    """A pod that declared a larger size is deleted: those that waited for it are woken."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    made.set_pod(pod("m0", memory=10, labels=LABELS, annotations=keys(size=2)))
    made.set_pod(pod("m1", memory=10, labels=LABELS, annotations=keys(size=2)))
    large = pod("large", memory=10, labels=LABELS, annotations=keys(size=4))
    made.set_pod(large)

    binder = RecordingBinder()
    async with running_loop(made, binder):
        await until(lambda: made.queue.depths()["backoff"] == 3)
        clock.now += 1
        await until(waits(made, 3))
        made.drop_pod(large)
        assert not binder.bound
        await keeper(made, noted).look()
        await until(lambda: len(binder.bound) == 2)


async def test_pods_that_differ_are_reported_once_on_one_of_them() -> None:
    """Again only if they differ otherwise, or have agreed meanwhile; one that runs is named if none waits."""
    noted, made = Noted(), state("n1")
    looks = keeper(made, noted)
    made.set_pod(pod("m0", memory=10, labels=LABELS, annotations=keys(size=3)))
    await looks.look()
    assert noted.events == []
    made.set_pod(pod("m1", memory=10, labels=LABELS, annotations=keys(size=4)))
    for _ in range(3):
        await looks.look()
    assert noted.events == [("GangDisagreement", "m0")]
    assert noted.notes == [
        "gang default/train: its pods declare sizes from 3 to 4: the largest counts; declare the same in all its pods"
    ]
    made.set_pod(pod("m1", memory=10, labels=LABELS, annotations=keys(size=5)))
    await looks.look()
    made.drop_pod(pod("m1"))
    await looks.look()
    made.drop_pod(pod("m0"))
    for index, size in enumerate((1, 5)):
        made.set_pod(running(f"r{index}", keys(size=size), card=index))
    await looks.look()
    assert noted.events == [("GangDisagreement", name) for name in ("m0", "m0", "r0")]


async def test_a_gang_that_is_being_bound_does_not_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods are about to run. Otherwise a bounded number of them has an event."""
    monkeypatch.setattr(gang_keeper, "_MOST_EVENTS", 2)
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock)
    for index in range(3):
        made.set_pod(pod(f"m{index}", memory=10, labels=LABELS, annotations=keys()))
    looks = keeper(made, noted)
    await looks.look()
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    gang.is_committing = True
    clock.now += 100
    await looks.look()
    assert noted.events == []
    gang.is_committing = False
    await looks.look()
    clock.now += 60
    await looks.look()
    assert len(noted.events) == 2


async def test_the_middle_of_a_decision_does_not_begin_the_time_anew() -> None:
    """As many pods as necessary are assumed on nodes for a moment, before the last one, and given back."""
    clock, noted = Clock(), Noted()
    made = state("n1", clock=clock, cards=4)
    for index in range(3):
        made.set_pod(pod(f"m{index}", memory=10, labels=LABELS, annotations=keys(size=2)))
    looks = keeper(made, noted)
    await looks.look()
    clock.now += 40
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    deciding = GangCycle(cycle_of(made)).schedule(gang, made.queue.take(list(gang.waiting)))
    while len(gang.nodes) < 2:
        advance(deciding)
    await looks.look()
    deciding.close()
    clock.now += 20
    await looks.look()
    assert {reason for reason, _ in noted.events} == {"GangSchedulingTimeout"}


async def test_other_tasks_run_between_two_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants may create thousands of gangs."""
    monkeypatch.setattr(gang_keeper, "Pacer", partial(Pacer, slice_seconds=0))
    made = state("n1")
    for index in range(5):
        made.set_pod(pod(f"m{index}", memory=10, labels={"gpu.scheduling/gang": f"g{index}"}, annotations=keys()))
    look, steps = asyncio.create_task(keeper(made, Noted()).look()), 0
    while not look.done():
        await asyncio.sleep(0)
        steps += 1
    assert steps >= 5
