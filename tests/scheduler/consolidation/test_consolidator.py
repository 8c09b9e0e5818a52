"""The controller: places are held before anybody is evicted, one pod is moved at a time, and it stops in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.consolidation.planner import NoPlan, Plan
from scheduler.metrics.labels import EvictionOutcome
from tests.scheduler.consolidation.scene import Scene
from tests.scheduler.support.builders import lease, node, status

if TYPE_CHECKING:
    from scheduler.objects import Pod

FRAGMENTED = ("one@a", "two@b")
"""Each of two nodes has one free card, so a pod that wants two waits."""


async def begun(*running: str, **settings: float) -> Scene:
    """Return a scene in which the first pod is being moved for `large`."""
    scene = Scene("a", "b", **settings)
    scene.run(*(running or FRAGMENTED))
    scene.wait()
    await scene.look()
    await scene.look(seconds=60)
    assert scene.held() != []
    return scene


async def of_two_moves(**settings: float) -> tuple[Scene, Pod]:
    """Return a scene in which two pods have to be moved for one that waits."""
    scene = Scene("a", "b", cards=3, **settings)
    scene.run("one@a", "two@a/1", "three@b", "four@b/1", memory=400)
    limits = {"nvidia.com/gpu": "3", "nvidia.com/gpumem": "1000"}
    waiting = scene.wait(containers=[{"name": "main", "resources": {"limits": limits, "requests": limits}}])
    await scene.look()
    return scene, waiting


async def test_a_pod_is_moved_for_one_that_fits_nowhere() -> None:
    """It gets the card that is left over elsewhere, and the one that waited its node."""
    scene = await begun()
    assert await scene.look() == []
    assert scene.evictor.evicted == ["one"]
    assert await scene.look() == ["one-0"], "its place was held for the pod before it"
    assert scene.node_of("one-0") == "b"
    scene.ends("one")
    assert await scene.driver.settle() == ["large"]
    assert scene.node_of("large") == "a"
    await scene.look()
    await scene.look()
    assert (scene.held(), scene.ended()) == ([], "placed")
    assert scene.metrics.moved_pods._value.get() == 1
    note = "moving 1 pod from node a to other nodes, so that this pod fits"
    assert scene.events.written == [("large", "Normal", "Consolidating", note)]
    assert scene.consolidator.ended is not None
    assert scene.consolidator.ended.uid == "uid-large"


async def test_everything_is_held_before_anybody_is_evicted() -> None:
    """What the pod that waits gets, and the place of the one that is moved; no pod of their rank takes either."""
    scene = await begun()
    assert scene.evictor.evicted == []
    assert scene.held() == ["place:uid-one@b", "uid-large@a"]
    hold = scene.state.holds.of("uid-large")
    assert hold is not None
    assert (hold.awaited, hold.is_nomination) == ({"uid-one"}, True)
    scene.run("three@a", memory=1)  # the node shows it, whatever is held
    scene.wait("other")
    assert await scene.driver.settle() == []


async def test_nobody_is_moved_before_the_pod_has_waited() -> None:
    """As long as the setting says."""
    scene = Scene("a", "b", after_seconds=30)
    scene.run(*FRAGMENTED)
    scene.wait()
    await scene.look()
    await scene.look(seconds=29)
    assert scene.held() == []
    await scene.look(seconds=1)
    assert scene.held() != []


async def test_nobody_is_moved_where_that_is_not_enabled() -> None:
    """But an administrator may ask for it."""
    scene = Scene("a", "b", enabled=False)
    scene.run(*FRAGMENTED)
    waiting = scene.wait()
    await scene.look()
    await scene.look(seconds=600)
    assert scene.held() == []
    assert isinstance(await scene.consolidator.begin(waiting), Plan)
    await scene.look()
    assert scene.evictor.evicted == ["one"]


async def test_an_administrator_gets_no_more_moves_than_were_agreed_to() -> None:
    """The cluster may have changed since the plan was shown."""
    scene, waiting = await of_two_moves(enabled=False)
    refused = await scene.consolidator.begin(waiting, most_moves=1)
    assert refused == NoPlan("2 pods would have to be moved now, more than 1")
    assert isinstance(await scene.consolidator.begin(waiting, most_moves=2), Plan)


async def test_the_next_pod_is_evicted_when_the_last_one_has_a_node() -> None:
    """And not before the pause between two evictions is over."""
    scene, _ = await of_two_moves(evictions_per_minute=6)
    await scene.look(seconds=60)
    scene.evictor.creates = False
    await scene.look()
    assert len(scene.evictor.evicted) == 1
    await scene.look(seconds=30)
    assert len(scene.evictor.evicted) == 1, "the first one has no node yet"
    first = scene.evictor.evicted[0]
    scene.driver.add(scene.evictor.replacement(scene.driver.running[first]))
    await scene.look()
    await scene.look()
    assert len(scene.evictor.evicted) == 2, "the pause was over long before"


async def test_evictions_are_as_rare_as_the_setting_says() -> None:
    """Six a minute: the second one comes ten seconds after the first."""
    scene, _ = await of_two_moves(evictions_per_minute=6)
    await scene.look(seconds=60)
    for _ in ("evicted", "placed again", "seen there"):
        await scene.look()
    await scene.look(seconds=9)
    assert len(scene.evictor.evicted) == 1
    await scene.look(seconds=1)
    assert len(scene.evictor.evicted) == 2


async def test_no_more_pods_are_moved_if_one_does_not_come_back() -> None:
    """Then nothing is held any more, and an event on the pod that waits says so."""
    scene = Scene("a", "b", replacement_seconds=100)
    scene.run(*FRAGMENTED)
    scene.wait()
    await scene.look()
    await scene.look(seconds=60)
    scene.evictor.creates = False
    await scene.look()
    await scene.look(seconds=129)
    assert scene.ended() == ""
    await scene.look(seconds=1)  # its grace period of 30 s counts
    assert (scene.held(), scene.ended()) == ([], "not_back")
    note = "no more pods are moved for it after 0 of 1: a moved pod has no node again after 100 s"
    assert scene.events.written[1:] == [("large", "Normal", "ConsolidationEnded", note)]


async def test_the_place_of_a_pod_is_released_where_it_went_elsewhere() -> None:
    """A node that became free meanwhile may be better for it."""
    scene = await begun()
    scene.evictor.creates = False
    await scene.look()
    gone = scene.driver.running["one"]
    scene.state.agent_reports.set(status("c", cards=1))
    scene.state.set_node(node("c"))
    scene.state.set_lease(lease("c", seconds=10**6))
    scene.driver.add(scene.evictor.replacement(gone))
    await scene.driver.settle()
    assert scene.node_of("one-0") == "c"
    await scene.look()
    assert scene.held() == ["uid-large@a"]


async def test_a_refused_eviction_ends_it() -> None:
    """Nobody is moved."""
    scene = await begun()
    scene.evictor.outcome = EvictionOutcome.REFUSED
    await scene.look()
    assert (scene.held(), scene.ended(), scene.evictor.evicted) == ([], "refused", [])
    assert scene.events.written[-1][3].endswith("0 of 1: an eviction was not carried out (refused)")
    await scene.look(seconds=9)
    assert scene.held() == [], "it is tried again after a pause"
    await scene.look(seconds=1)
    assert scene.held() != []


async def test_nobody_is_moved_for_a_pod_that_is_gone() -> None:
    """Nor for one that fits by now."""
    scene = await begun()
    scene.state.drop_pod(scene.state.queue.pod("uid-large") or pytest.fail("it waits"))
    await scene.look()
    assert (scene.held(), scene.ended(), scene.evictor.evicted) == ([], "gone", [])


async def test_a_pod_that_was_evicted_gets_its_place_though_the_other_fits_without() -> None:
    """Its place is held until it has a node; the pod that waited may have found another one meanwhile."""
    scene = await begun()
    scene.evictor.creates = False
    await scene.look()
    gone = scene.driver.running["one"]
    scene.ends("one")
    assert await scene.driver.settle() == ["large"]
    assert scene.held() == ["place:uid-one@b"]
    scene.driver.add(scene.evictor.replacement(gone))
    assert await scene.look() == ["one-0"]
    await scene.look()
    await scene.look()
    assert (scene.held(), scene.ended()) == ([], "placed")


async def test_a_pod_that_does_not_end_in_time_ends_it() -> None:
    """The cards are held for as long as those of a nomination."""
    scene = await begun()
    for _ in ("evicted", "placed again", "seen there"):
        await scene.look()
    await scene.look(seconds=359)
    assert scene.ended() == ""
    await scene.look(seconds=1)
    assert (scene.held(), scene.ended()) == ([], "late")


async def test_there_is_one_plan_at_a_time() -> None:
    """Another pod has to wait for it."""
    scene = await begun()
    other = scene.wait("other")
    await scene.driver.settle()
    assert await scene.consolidator.begin(other) == NoPlan(
        "pods are being moved for another pod; try again when it has its cards"
    )


async def test_no_moves_are_planned_in_the_middle_of_a_decision_about_a_gang() -> None:
    """What its pods have at the moment may be given back."""
    scene = Scene("a", "b")
    scene.run(*FRAGMENTED)
    waiting = scene.wait()
    await scene.look()
    async with scene.state.turn:
        planning = asyncio.create_task(scene.consolidator.begin(waiting))
        for _ in range(20):
            await asyncio.sleep(0)
        assert scene.held() == []
    assert isinstance(await planning, Plan)
