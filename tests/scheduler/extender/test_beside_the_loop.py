"""The extender next to a loop: neither sees the middle of what the other one decides in several steps."""

from __future__ import annotations

import asyncio

import pytest

from allocation.names import GANG, GANG_MIN_MEMBERS
from allocation.settings import AllocationSettings
from scheduler.extender.wire import Args
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.extending import cache, extending

HANDING_OVER = AllocationSettings(resource_claims="hand-over")


def handed_over(name: str, **more: object) -> Pod:
    """Return a pod that kube-scheduler has."""
    return pod(name, memory=600, schedulerName="tranche-claims", **more)


def member(name: str, gang: str, *, scheduler: str, node: str = "") -> Pod:
    """Return a pod of a gang of two."""
    annotations = {GANG: gang, GANG_MIN_MEMBERS: "2"}
    if not node:
        return pod(name, memory=600, schedulerName=scheduler, annotations=annotations)
    made = allocated(name, node=node, memory=600, schedulerName=scheduler)
    made.metadata.annotations.update(annotations)
    return made


async def is_done_soon(task: asyncio.Task[object]) -> bool:
    """Whether a task ends within some turns of the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize("made", [state("n1", settings=HANDING_OVER), state("n1", has_queue=False)])
async def test_nothing_is_evaluated_while_the_loop_reserves_a_gang(made: ClusterState) -> None:
    """It may forget the gang again, and nothing would then have the pod tried again; extender mode has no loop."""
    verbs, asking = extending(made), handed_over("a")
    cache(verbs, asking)
    async with made.turn:
        task = asyncio.create_task(verbs.filter(Args.of_pod(asking, ("n1",))))
        assert await is_done_soon(task) is not made.has_queue
    assert (await task).nodenames == ["n1"]


async def test_the_loop_decides_nothing_while_a_gang_is_rehearsed() -> None:
    """The loop would take the cards to be taken, and its pod would wait for an event that does not come."""
    made = state("n1", settings=HANDING_OVER)
    verbs = extending(made)
    cache(verbs, *(member(name, "g", scheduler="tranche-claims") for name in ("a", "b")))
    gang = made.gangs.of("uid-a")
    assert gang is not None
    async with made.decision:
        task = asyncio.create_task(verbs._gathering.rehearsals.plan(gang))
        assert not await is_done_soon(task)
    assert len(await task) == 2


async def test_gangs_of_the_loop_do_not_gather() -> None:
    """Of one that an earlier leader has bound in part, the loop brings the rest."""
    made = state("n1", "n2", settings=HANDING_OVER)
    verbs = extending(made)
    for gang, scheduler in (("loop", "tranche"), ("handed-over", "tranche-claims")):
        cache(
            verbs,
            member(f"{gang}-0", gang, scheduler=scheduler, node="n1"),
            member(f"{gang}-1", gang, scheduler=scheduler),
        )
    verbs._gathering._want_unfinished()
    first = verbs._gathering._turns.first()
    assert first is not None
    assert first.name == "handed-over"
    verbs._gathering._turns.drop(first)
    assert verbs._gathering._turns.first() is None
