"""How decisions about gangs end is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import GangOutcome
from tests.scheduler.gang_scheduling.test_all_or_nothing import RecordingBinder, member, running, waits
from tests.scheduler.gang_scheduling.test_timeouts import Noted, keeper, keys
from tests.scheduler.gang_scheduling.test_timeouts import running as on_node
from tests.scheduler.support.builders import Clock, pod, state
from tests.scheduler.support.volume_binding import until

if TYPE_CHECKING:
    from scheduler.gang_scheduling.gang_keeper import GangKeeper
    from scheduler.loop import Loop


def counts(of: Loop | GangKeeper) -> dict[str, float]:
    """Return how often each outcome was counted, without those that never were."""
    counter = cast("Metrics", of._metrics).gang_outcomes
    found = {each.value: counter.labels(each.value)._value.get() for each in GangOutcome}
    return {outcome: count for outcome, count in found.items() if count}


async def test_a_gang_that_is_bound_or_rejected_is_counted() -> None:
    """Once for the gang, however many pods it has."""
    made, binder = state("n1", cards=4), RecordingBinder()
    async with running(made, binder) as loop:
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 4)
        for index in range(2):
            made.set_pod(member(f"late{index}", "late", size=2))
        await until(waits(made, 2))
        await until(lambda: counts(loop) == {"bound": 1.0, "rejected": 1.0})


async def test_the_last_pod_of_a_gang_is_counted_like_a_whole_one() -> None:
    """One of two pods has a node already, so one Binding completes the gang."""
    made, binder = state("n1", cards=4), RecordingBinder()
    made.set_pod(on_node("m0", keys(size=2), card=0))
    made.set_pod(member("m1", size=2))
    async with running(made, binder) as loop:
        await until(lambda: counts(loop) == {"bound": 1.0})
    assert list(binder.bound) == ["m1"]


async def test_a_gang_of_which_too_few_pods_are_bound_is_counted_as_refused() -> None:
    """A policy refuses one of its Bindings in the dry run."""
    made, binder = state("n1", cards=4), RecordingBinder()
    binder.refuses_rehearsal = {"m2"}
    async with running(made, binder) as loop:
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: counts(loop) == {"refused": 1.0})


async def test_a_timeout_is_counted() -> None:
    """Once for each period."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_pod(pod("m0", memory=10, labels={"gpu.scheduling/gang": "train"}, annotations=keys()))
    looks = keeper(made, Noted())
    await looks.look()
    clock.now += 61
    await looks.look()
    assert counts(looks) == {"timed_out": 1.0}
