"""The controller: what its preemptions free is held for the pod, and it gives up what does not help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.holds import Hold
from tests.scheduler.preemption.test_choice import budget
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preemption_scene import Scene, rest

if TYPE_CHECKING:
    from allocation.steps import Steps
    from scheduler.objects import Pod

WHOLE = pod("nominee", memory=1000, priority=10)


async def nominated(*running: str, **settings: int) -> Scene:
    """Return a scene in which `nominee` waits for the end of its victim."""
    scene = Scene(*sorted({each.partition("@")[2] for each in running}), **settings)
    scene.run(*running)
    scene.driver.add(WHOLE)
    assert await scene.look() == []
    assert scene.evictor.evicted == [running[0].partition("@")[0]]
    return scene


def may_take(scene: Scene, name: str, priority: int) -> bool:
    """Whether another pod would be placed now."""
    return isinstance(finish(scene.driver.cycle.dry_run(pod(name, memory=1000, priority=priority))).result, Scheduled)


async def test_the_cards_are_held_before_anybody_is_evicted() -> None:
    """In the step of the choice."""
    scene = Scene("a")
    scene.run("victim@a")
    scene.driver.add(WHOLE)
    seen = []
    scene.evictor.on_eviction = lambda preemptor, victim: seen.append(
        (scene.hold_of(preemptor.metadata.name), victim.metadata.name)
    )
    await scene.look()
    assert seen == [("a", "victim")]
    hold = scene.state.holds.of(WHOLE.uid)
    assert hold is not None
    assert (hold.is_nomination, hold.awaited) == (True, {"uid-victim"})


async def test_the_nominee_is_bound_when_its_victim_has_ended() -> None:
    """And nothing is held any more."""
    scene = await nominated("victim@a")
    scene.driver.end("victim")
    assert await scene.driver.settle() == ["nominee"]
    assert not scene.state.holds
    await scene.look()
    assert scene.evictor.nominated == ["nominee@a"]


async def test_the_nominee_is_not_placed_elsewhere_while_its_evictions_are_sent() -> None:
    """One that is under way then would cost a pod for nothing; afterwards it goes where there is room first."""
    scene = Scene("a", "b")
    scene.run("victim@a")
    scene.run("other@b", priority=20)
    scene.driver.add(WHOLE)
    placed = []

    async def ends_elsewhere() -> None:
        scene.driver.end("other")
        placed.append(await scene.driver.settle())

    scene.evictor.while_evicting = ends_elsewhere
    assert await scene.look() == ["nominee"]
    assert placed == [[]]
    assert scene.driver.running["nominee"].spec.node_name == "b"
    assert not scene.state.holds


async def test_only_a_pod_of_higher_priority_takes_what_became_free() -> None:
    """Lower and equal ones wait."""
    scene = await nominated("victim@a")
    scene.driver.end("victim")
    assert [may_take(scene, "other", priority) for priority in (0, 9, 10, 11)] == [False, False, False, True]


async def test_a_pod_that_loses_its_cards_to_a_higher_one_tries_again_after_a_pause() -> None:
    """The attempt has failed."""
    scene = await nominated("victim@a", "later@b")
    scene.driver.add(pod("higher", memory=1000, priority=11))
    scene.driver.end("victim")
    assert await scene.driver.settle() == ["higher"]
    await scene.look()
    scene.clock.now += 9.9
    await scene.look()
    assert scene.evictor.evicted == ["victim"]
    scene.clock.now += 0.2
    await scene.look()
    assert scene.evictor.evicted == ["victim", "later"]


async def test_a_deadline_ends_a_nomination() -> None:
    """The victim does not end."""
    scene = await nominated("victim@a", nomination_seconds=100)
    scene.clock.now += 99
    await scene.look()
    assert scene.hold_of("nominee") == "a"
    scene.clock.now += 1
    await scene.look()
    assert scene.hold_of("nominee") == ""
    assert scene.evictor.cleared == ["nominee"]


async def test_a_long_grace_period_does_not_move_the_deadline() -> None:
    """Otherwise whoever writes the victim decides for how long a card is held."""
    scene = Scene("a", nomination_seconds=100)
    scene.run("victim@a", terminationGracePeriodSeconds=10**9)
    scene.driver.add(WHOLE)
    await scene.look()
    scene.clock.now += 99
    await scene.look()
    assert scene.hold_of("nominee") == "a"
    scene.clock.now += 1
    await scene.look()
    assert scene.hold_of("nominee") == ""


async def test_pods_that_end_too_slowly_are_preempted_last() -> None:
    """Rather one of a higher priority, on another node or on the same; alone they are better than nothing."""
    scene = Scene("a", "b", nomination_seconds=100)
    scene.run("slow@a", terminationGracePeriodSeconds=101)
    scene.run("dear@b", priority=9, terminationGracePeriodSeconds=100)
    scene.driver.add(WHOLE)
    await scene.look()
    assert scene.evictor.evicted == ["dear"]
    scene.driver.add(pod("another", memory=1000, priority=10))
    await scene.look()
    assert scene.evictor.evicted == ["dear", "slow"]
    scene = Scene("a", cards=2, nomination_seconds=100)
    scene.run("slow@a", terminationGracePeriodSeconds=101)
    scene.run("dear@a", card=1, priority=9)
    scene.driver.add(WHOLE)
    await scene.look()
    assert scene.evictor.evicted == ["dear"]


async def test_a_refused_eviction_ends_the_nomination_and_nobody_is_evicted() -> None:
    """The card is free for others as before."""
    scene = Scene("a")
    scene.run("victim@a")
    scene.evictor.refuses = True
    scene.driver.add(WHOLE)
    await scene.look()
    assert (scene.hold_of("nominee"), scene.evictor.cleared) == ("", ["nominee"])
    assert not scene.driver.running["victim"].metadata.deletion_timestamp


async def test_three_attempts_with_doubling_pauses_until_the_spec_changes() -> None:
    """10 and 20 seconds; then none until the pod's spec is another one."""
    scene = Scene("a")
    scene.run("victim@a")
    scene.evictor.refuses = True
    scene.driver.add(WHOLE)
    attempts = []
    for seconds in (0.0, 9.9, 0.1, 19.9, 0.1, 1_000.0):
        scene.clock.now += seconds
        await scene.look()
        attempts.append(len(scene.evictor.nominated))
    assert attempts == [1, 1, 2, 2, 3, 3]
    changed = pod("nominee", memory=999, priority=10)
    scene.state.set_pod(changed, WHOLE)
    scene.clock.now += 10  # the queue's own back-off
    await scene.look()
    assert len(scene.evictor.nominated) == 4


async def test_so_many_pods_at_once_as_are_allowed() -> None:
    """The next one begins when one is bound."""
    scene = Scene("a", "b", "c", concurrent=2)
    scene.run("on-a@a", "on-b@b", "on-c@c")
    scene.driver.add(*(pod(f"p{number}", memory=1000, priority=10) for number in range(3)))
    await scene.look()
    assert len(scene.state.holds.nominations) == 2
    assert len(scene.evictor.evicted) == 2
    scene.driver.end(scene.evictor.evicted[0])
    await scene.look()
    assert len(scene.evictor.evicted) == 3


async def test_pods_of_one_namespace_do_not_keep_others_from_preempting() -> None:
    """Eight victims that never end would otherwise switch preemption off for all pods."""
    scene = Scene("a", "b", "c", concurrent=1)
    scene.run("on-a@a", "on-b@b", "on-c@c", terminationGracePeriodSeconds=10**9)
    scene.driver.add(*(pod(f"p{number}", memory=1000, priority=10) for number in range(2)))
    await scene.look()
    assert len(scene.state.holds.nominations) == 1
    scene.driver.add(pod("other", memory=1000, priority=10, namespace="elsewhere"))
    await scene.look()
    assert {hold.uid for hold in scene.state.holds.nominations} == {"uid-p0", "uid-other"}


async def test_more_important_pod_takes_the_place_of_a_lesser_nominee() -> None:
    """Of its own queue; one of the same priority waits."""
    scene = Scene("a", "b", concurrent=1)
    scene.run("on-a@a", "on-b@b")
    scene.driver.add(WHOLE)
    await scene.look()
    scene.driver.add(pod("equal", memory=1000, priority=10))
    await scene.look()
    assert scene.hold_of("nominee")
    scene.driver.add(pod("important", memory=1000, priority=11))
    await scene.look()
    assert scene.hold_of("important")
    assert scene.hold_of("nominee") == ""
    assert scene.evictor.cleared == ["nominee"]


async def test_pod_that_preempts_nobody_takes_no_place_of_a_lesser_nominee() -> None:
    """Otherwise pods that fit nowhere at all would end the nominations of their queue, again and again."""
    scene = Scene("a", concurrent=1)
    scene.run("victim@a")
    scene.driver.add(pod("nominee", memory=1000, priority=5))
    await scene.look()
    scene.driver.add(pod("too-large", memory=1001, priority=9))
    await scene.look()
    assert scene.hold_of("nominee") == "a"
    assert scene.evictor.cleared == []


async def test_nobody_is_evicted_where_pods_that_end_make_the_room() -> None:
    """It is held, whatever else is cheap."""
    scene = Scene("a", "b")
    scene.run("ends@b", priority=90)
    scene.run("cheap@a")
    scene.driver.begin_to_end("ends")
    scene.driver.add(WHOLE)
    await scene.look()
    assert (scene.hold_of("nominee"), scene.evictor.evicted) == ("b", [])


async def test_pods_of_one_kind_wait_together_while_nobody_can_be_preempted() -> None:
    """One is tried for all; the pause doubles from a second."""
    scene = Scene("a")
    scene.run("guarded@a", labels={"app": "db"})
    scene.guard(budget("db", allowed=0, app="db"))
    scene.driver.add(*(pod(f"p{number}", memory=1000, priority=10) for number in range(5)))
    asked = []
    for seconds in (0.0, 0.9, 0.1, 1.9, 0.1):
        scene.clock.now += seconds
        await scene.look()
        asked.append(scene.chooser.asked)
    assert asked == [1, 1, 2, 2, 3]


async def test_nothing_is_held_for_a_deleted_pod() -> None:
    """And its place is free for another one."""
    scene = await nominated("victim@a", concurrent=1)
    scene.state.drop_pod(WHOLE)
    assert not scene.state.holds
    scene.driver.add(pod("next", memory=1000, priority=9))
    await scene.look()
    assert scene.hold_of("next") == "a"
    assert scene.evictor.evicted == ["victim"]


async def test_evictions_stop_when_the_pod_does_not_need_them_any_more() -> None:
    """It was deleted, or placed where another pod has ended meanwhile."""
    scene = Scene("a")
    scene.run("one@a", "two@a", memory=500)
    scene.evictor.on_eviction = lambda _preemptor, _victim: scene.state.drop_pod(WHOLE)
    scene.driver.add(WHOLE)
    await scene.look()
    assert len(scene.evictor.evicted) == 1


def with_nomination(waiting: Pod, node: str) -> Pod:
    """Return a pod whose status has a nomination."""
    return msgspec.structs.replace(waiting, status=msgspec.structs.replace(waiting.status, nominated_node_name=node))


async def test_a_new_leader_goes_on_where_the_old_one_was_after_the_eviction() -> None:
    """The same node, and no other pod goes."""
    old = await nominated("victim@a", "cheaper@b")
    new = Scene("a", "b", clock=old.clock)
    for name, running in old.driver.running.items():
        new.driver.running[name] = running
        new.state.set_pod(running)
    waiting = with_nomination(WHOLE, "a")
    new.driver.add(waiting)
    await new.preemptor.restore([waiting])
    await rest()
    assert (new.hold_of("nominee"), new.evictor.nominated) == ("a", [])
    await new.look()
    assert new.evictor.nominated == []


async def test_a_new_leader_goes_on_where_the_old_one_was_before_the_eviction() -> None:
    """The nominated node comes first, even if others are cheaper by now."""
    scene = Scene("a", "b")
    scene.run("victim@a", priority=5)
    scene.run("cheaper@b", priority=1)
    waiting = with_nomination(WHOLE, "a")
    scene.driver.add(waiting)
    await scene.preemptor.restore([waiting])
    await rest()
    assert scene.evictor.evicted == ["victim"]
    scene.driver.end("victim")
    assert await scene.driver.settle() == ["nominee"]


async def test_a_nomination_that_became_vain_is_removed_by_a_new_leader() -> None:
    """No pod may be preempted any more."""
    scene = Scene("a")
    scene.run("equal@a", priority=10)
    waiting = with_nomination(WHOLE, "a")
    scene.driver.add(waiting)
    await scene.preemptor.restore([waiting])
    assert (scene.evictor.cleared, scene.hold_of("nominee")) == (["nominee"], "")


async def test_no_controller_looks_when_preemption_is_disabled() -> None:
    """The off-switch."""
    scene = Scene("a", enabled=False)
    scene.run("victim@a")
    scene.driver.add(WHOLE)
    await scene.preemptor.restore([with_nomination(WHOLE, "a")])
    await scene.preemptor.run()
    assert (scene.chooser.asked, scene.evictor.nominated) == (0, [])


async def test_nothing_is_held_for_a_pod_that_is_deleted_during_the_choice() -> None:
    """No pod is evicted for it either, and the next pod of its kind preempts at once."""
    scene = Scene("a")
    scene.run("victim@a")
    scene.driver.add(WHOLE)
    choose = scene.chooser.choose

    def choose_slowly(asks: Pod, **more: Any) -> Steps[Any]:
        found = yield from choose(asks, **more)
        if asks.uid == WHOLE.uid:
            scene.state.drop_pod(asks)
        return found

    scene.chooser.choose = choose_slowly  # type: ignore[method-assign]
    await scene.look()
    assert not scene.state.holds
    assert scene.evictor.evicted == []
    scene.driver.add(pod("other", memory=1000, priority=10))
    await scene.look()
    assert scene.evictor.evicted == ["victim"]


async def test_hold_of_a_pod_that_left_the_queue_is_released() -> None:
    """Whatever took it from there."""
    scene = await nominated("victim@a")
    scene.state.queue.remove(WHOLE.uid)
    await scene.look()
    assert not scene.state.holds


async def test_search_for_victims_is_interrupted_between_pods() -> None:
    """And its time is charged to the queue of the pod for which it searches."""
    scene = Scene("a")
    scene.run(*(f"small-{number}@a" for number in range(20)), memory=50)
    scene.driver.add(WHOLE)
    await scene.driver.settle()
    steps = scene.chooser.choose(WHOLE)
    count = sum(1 for _ in steps)
    assert count > 20
    entry = scene.state.queue.get(WHOLE.uid)
    charged: list[tuple[object, bool]] = []
    scene.state.queue.charge = lambda pod, seconds, *, placed: charged.append((pod, placed or seconds <= 0))  # type: ignore[method-assign]
    await scene.look()
    assert charged[0] == (entry, False)


async def test_a_victim_of_two_pods_is_evicted_once() -> None:
    """Both are chosen before it is evicted for either; each gets half of its card."""
    scene = Scene("a")
    scene.run("victim@a")
    halves = [pod(name, memory=500, priority=10) for name in ("one", "other")]
    scene.driver.add(*halves)
    assert await scene.look() == []
    assert [scene.hold_of(each.metadata.name) for each in halves] == ["a", "a"]
    assert scene.evictor.evicted == ["victim"]
    scene.driver.end("victim")
    assert sorted(await scene.driver.settle()) == ["one", "other"]


async def test_a_pod_for_which_others_are_moved_preempts_none() -> None:
    """Its cards are held already."""
    scene = Scene("a")
    scene.run("lower@a")
    scene.driver.add(WHOLE)
    await scene.driver.settle()
    key, rank = scene.state.fair_share.key(WHOLE), scene.state.fair_share.pod_rank(WHOLE)
    hold = Hold(WHOLE.uid, key, rank, "a", (), frozenset(), cause="consolidation")
    scene.state.holds.add(hold, WHOLE)
    await scene.look()
    assert scene.evictor.evicted == []
    assert scene.state.holds.of(WHOLE.uid) is hold
