"""A gang preempts as one: for all of its pods that need places, or for none."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import QUEUE
from scheduler.gangs.gang import GangKey
from scheduler.holds import Hold
from tests.scheduler.model.recount import counted
from tests.scheduler.preemption.test_choice import budget
from tests.scheduler.preemption.test_preemptor import with_nomination
from tests.scheduler.state.test_gpu_quotas import gpu_quota
from tests.scheduler.support.builders import Clock, node, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.gang_driving import GangDriver, member
from tests.scheduler.support.preemption_scene import Scene, rest
from tests.scheduler.support.reclaiming import end_evicted, let_run, of_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

TRAIN = GangKey("default", "train")


def scene(*nodes: str, cards: int = 1, **settings: Any) -> Scene:
    """Return a cluster that places and preempts for gangs, with a card on each node unless more are given."""
    clock = Clock()
    return Scene(*nodes, driver=GangDriver(state(*nodes, cards=cards, clock=clock)), clock=clock, **settings)


def gang(count: int, *, size: int = 0, priority: int = 10, **more: Any) -> list[Any]:
    """Return `count` pods of a gang that needs all of them, or `size`."""
    return [member(f"m{number}", size=size or count, priority=priority, **more) for number in range(count)]


def holds(made: Scene) -> dict[str, str]:
    """Return the nodes that are held, by pod."""
    return {hold.uid.removeprefix("uid-"): hold.node for hold in made.state.holds}


async def end(made: Scene, names: Iterable[str]) -> list[str]:
    """Let pods end; return which pods are placed then."""
    for name in names:
        made.driver.end(name)
    return await made.driver.settle()


def why(made: Scene) -> str:
    """Return why nothing was preempted for the gang."""
    found = made.state.gangs.get(TRAIN)
    assert found is not None
    assert made.preemptor.gang_chooser is not None
    return made.preemptor.gang_chooser.why(found, next(iter(found.waiting.values())))


async def test_victims_are_evicted_for_all_pods_of_a_gang_in_one_decision() -> None:
    """On the nodes of each; all are nominated first, and get their nodes together when the last victim has ended."""
    made = scene("a", "b", "c")
    made.run("on-a@a", "on-b@b", "on-c@c")
    made.driver.add(*gang(3))
    assert await made.look() == []
    assert sorted(made.evictor.evicted) == ["on-a", "on-b", "on-c"]
    assert {each.partition("@")[0] for each in made.evictor.nominated} == {"m0", "m1", "m2"}
    assert sorted(holds(made).values()) == ["a", "b", "c"]
    assert await end(made, ["on-a", "on-b"]) == []
    assert sorted(holds(made).values()) == ["a", "b", "c"], "an attempt without success holds again what it released"
    assert sorted(await end(made, ["on-c"])) == ["m0", "m1", "m2"]
    assert not made.state.holds
    await made.look()
    assert len(made.evictor.nominated) == 3


async def test_a_free_place_counts_and_is_kept_for_the_gang() -> None:
    """Only the second pod needs a victim; no pod of the same priority takes the free card meanwhile."""
    made = scene("a", "b")
    made.run("on-b@b")
    made.driver.add(*gang(2))
    await made.look()
    assert made.evictor.evicted == ["on-b"]
    made.driver.add(pod("single", memory=1000, priority=10))
    assert await made.driver.settle() == []
    assert sorted(await end(made, ["on-b"])) == ["m0", "m1"]


async def test_no_pod_is_evicted_if_one_pod_too_many_has_no_place() -> None:
    """Everything is as it was, also what was held before; explain has the reason."""
    made = scene("a", "b", "c")
    made.run("on-a@a", "on-b@b")
    made.run("important@c", priority=90)
    made.driver.add(*gang(3))
    await made.driver.settle()
    before = deepcopy(counted(made.state))
    await made.look()
    assert (made.evictor.evicted, made.evictor.nominated, holds(made)) == ([], [], {})
    assert counted(made.state) == before
    assert why(made).startswith("pod default/m2 of its gang: evicting all eligible lower-priority pods would not")


async def test_what_was_held_before_is_held_again_if_one_pod_has_no_place() -> None:
    """Without evictions, because the gang has waited too long: its first pod has a place, but the second has none."""
    made = scene("a", "b")
    made.run("on-a@a")
    made.run("important@b", priority=90)
    made.driver.add(*gang(2))
    await made.driver.settle()
    waits, fair_share = made.state.queue.pod("uid-m0"), made.state.fair_share
    assert waits is not None
    hold = Hold(waits.uid, fair_share.key(waits), fair_share.pod_rank(waits), "a", (), frozenset({"uid-on-a"}))
    made.state.holds.add(hold, waits)
    await made.look()
    assert made.state.holds.of("uid-m0") is hold


async def test_the_room_of_one_victim_is_used_by_several_pods_of_the_gang() -> None:
    """The second pod gets the other half of the card that is freed for the first, rather than a card of its own."""
    made = scene("a", "b")
    made.run("on-a@a", priority=5)
    made.run("on-b@b", priority=5)
    made.driver.add(*gang(2, memory=500))
    await made.look()
    assert len(made.evictor.evicted) == 1
    assert len(set(holds(made).values())) == 1
    assert sorted(await end(made, made.evictor.evicted)) == ["m0", "m1"]


async def test_what_is_left_of_a_freed_card_comes_before_a_victim_of_lower_priority() -> None:
    """The larger pod fits on node a only; the smaller one would fit on node b, too, at the cost of one more pod."""
    made = scene("a", "b")
    made.run("on-a@a", priority=5)
    made.run("low@b", memory=500, priority=1)
    made.run("high@b", memory=500, priority=90)
    made.driver.add(member("m0", memory=600, priority=10), member("m1", memory=400, priority=10))
    await made.look()
    assert made.evictor.evicted == ["on-a"]
    assert sorted(await end(made, ["on-a"])) == ["m0", "m1"]


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        ({"maxPods": 2}, []),
        ({"maxPods": 3}, ["on-a"]),
        ({"limits": {"nvidia.com/gpumem": 1999}}, []),
        ({"limits": {"nvidia.com/gpumem": 2000}}, ["on-a"]),
    ],
)
async def test_free_places_count_in_the_quota_beside_those_of_victims(
    total: dict[str, Any], expected: list[str]
) -> None:
    """The largest pod needs a victim, and the other two fit: the quota has to allow all of them."""
    made = scene("a", "b", "c")
    made.state.limits.set_gpu_quota(gpu_quota(total=total))
    made.run("half-b@b", "half-c@c", memory=500, priority=90, namespace="other")
    made.run("on-a@a", namespace="other")
    made.driver.add(
        member("m0", size=3, priority=10), *(member(f"m{n}", size=3, memory=500, priority=10) for n in (1, 2))
    )
    await made.look()
    assert made.evictor.evicted == expected


async def test_cpu_is_needed_once_for_each_pod() -> None:
    """Node a has cards for both, and CPU for one."""
    made = scene("a", "b", cards=2)
    for name in "ab":
        made.state.set_node(node(name, status={"allocatable": {"cpu": "1", "memory": "64Gi", "pods": "110"}}))
    made.run("a0@a", "b0@b")
    made.run("a1@a", "b1@b", card=1)
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": {**limits, "cpu": "1"}}}]
    made.driver.add(*gang(2, containers=containers))
    await made.look()
    assert sorted(holds(made).values()) == ["a", "b"]


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize("kind", ["pods", "memory", "instances"])
async def test_quotas_count_all_pods_of_the_gang(kind: str, most: int) -> None:
    """Those of the namespace and of the queue: a third pod is one too many for two, and no pod is evicted for two."""
    made = scene("a", "b", "c")
    made.run("on-a@a", "on-b@b", "on-c@c", namespace="other")
    labels = {"gpu.scheduling/gang": "train"}
    if kind == "pods":
        made.state.limits.set_gpu_quota(gpu_quota(total={"maxPods": most}))
    elif kind == "memory":
        made.state.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 1000 * most}}))
    else:
        made.state.limits.set_queue(gpu_queue("q", maxInstances=most))
        labels["gpu.scheduling/queue"] = "q"
    pods = gang(3)
    for each in pods:
        each.metadata.labels = {**each.metadata.labels, **labels}
    made.driver.add(*pods)
    await made.look()
    assert len(made.evictor.evicted) == (3 if most == 3 else 0)
    assert len(holds(made)) == len(made.evictor.evicted)


async def test_a_victim_gives_back_its_quota_to_the_gang_once() -> None:
    """Of the namespace's two pods one is a victim; the gang of two would need both to go."""
    made = scene("a", "b")
    made.state.limits.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    made.run("low@a")
    made.run("high@b", priority=50)
    made.driver.add(*gang(2, memory=500))
    await made.look()
    assert made.evictor.evicted == []
    made.run("high@b", priority=5)
    made.clock.now += 10
    await made.look()
    assert sorted(made.evictor.evicted) == ["high", "low"]


async def test_a_budget_is_reserved_for_the_victims_of_all_pods() -> None:
    """It permits one disruption, and the gang needs two."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b", labels={"app": "db"})
    made.guard(budget("db", allowed=1, app="db"))
    made.driver.add(*gang(2))
    await made.look()
    assert made.evictor.evicted == []
    made.guard(budget("db", allowed=2, app="db"))
    made.clock.now += 10
    await made.look()
    assert sorted(made.evictor.evicted) == ["on-a", "on-b"]


async def test_of_an_elastic_gang_as_many_as_it_needs_preempt() -> None:
    """Two of three; a fourth card stays with its pod."""
    made = scene("a", "b", "c")
    made.run("on-a@a", "on-b@b", "on-c@c")
    made.driver.add(*gang(3, size=2))
    await made.look()
    assert len(made.evictor.evicted) == 2
    assert len(holds(made)) == 2
    assert len(await end(made, made.evictor.evicted)) == 2


async def test_what_a_gang_has_already_counts() -> None:
    """One of two runs, so the other one needs one victim, and never its own gang's pod."""
    made = scene("a", "b")
    made.run("m0@a", priority=1, labels={"gpu.scheduling/gang": "train"})
    made.state.set_pod(made.driver.running["m0"])
    made.run("on-b@b", priority=5)
    made.driver.add(member("m1", priority=10))
    await made.look()
    assert made.evictor.evicted == ["on-b"]
    assert await end(made, ["on-b"]) == ["m1"]


async def test_a_gang_by_labels_goes_as_a_whole_for_another_gang() -> None:
    """Its pod on the third node is of no use alone; both pods of the other gang get places by it."""
    made = scene("a", "b", "c")
    made.run("o0@a", "o1@b", "o2@c", labels={"gpu.scheduling/gang": "old"})
    assert [each.unit for each in made.chooser.eligibility.unit("uid-o2", pod("p", priority=10))] == ["uid-o0"] * 3
    made.driver.add(*gang(2))
    await made.look()
    assert sorted(made.evictor.evicted) == ["o0", "o1", "o2"]
    assert len(await end(made, ["o0", "o1", "o2"])) == 2


async def test_a_gang_counts_as_one_nominee_of_its_queue() -> None:
    """Three pods are held for, and there may be two nominees: another pod of the queue may still preempt."""
    made = scene(*"abcde", concurrent=2)
    made.run(*(f"on-{name}@{name}" for name in "abcde"))
    made.driver.add(*gang(3))
    await made.look()
    assert len(holds(made)) == 3
    made.driver.add(*(pod(f"p{number}", memory=1000, priority=10) for number in range(2)))
    await made.look()
    assert len(holds(made)) == 4


async def test_a_refused_eviction_releases_the_holds_of_all() -> None:
    """And their nominations; it is tried again after a pause."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b")
    made.evictor.refuses = True
    made.driver.add(*gang(2))
    await made.look()
    assert holds(made) == {}
    assert sorted(made.evictor.cleared) == ["m0", "m1"]
    made.evictor.refuses = False
    made.clock.now += 9
    await made.look()
    assert made.evictor.evicted == []
    made.clock.now += 1
    await made.look()
    assert len(made.evictor.evicted) == 2


async def test_a_hold_that_others_lift_while_its_eviction_is_refused_ends_with_its_nominee() -> None:
    """A choice in several steps puts back what was held; the preemptor waits for that, and releases it."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b")
    made.evictor.refuses = True
    pods = gang(2)
    choosing: list[asyncio.Task[None]] = []

    async def lift() -> None:
        await made.state.turn.acquire()
        lifted = [(each, made.state.holds.of(each.uid)) for each in pods]
        for each, _ in lifted:
            made.state.release_hold(each.uid)
        choosing.append(asyncio.create_task(put_back(lifted)))

    async def put_back(lifted: list[tuple[Any, Hold | None]]) -> None:
        await rest()
        for each, hold in lifted:
            assert hold is not None
            made.state.holds.add(hold, each)
        made.state.turn.release()

    made.evictor.while_evicting = lift
    made.driver.add(*pods)
    await made.look()
    await asyncio.gather(*choosing)
    await rest()
    assert holds(made) == {}


async def test_a_nomination_that_ended_while_its_eviction_was_refused_is_not_ended_again() -> None:
    """Its pods are gone by the time that the preemptor has its turn: nothing is cleared for them."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b")
    made.evictor.refuses = True
    pods = gang(2)

    async def go() -> None:
        made.state.drop_pod(pods[0])
        await made.preemptor._end_nominations()

    made.evictor.while_evicting = go
    made.driver.add(*pods)
    await made.look()
    assert (holds(made), made.evictor.cleared) == ({}, [])


@pytest.mark.parametrize("what", ["deleted", "late", "taken"])
async def test_the_holds_of_a_gang_end_together(what: str) -> None:
    """When one of its pods is deleted, the deadline is over, or a pod of higher priority takes a card."""
    made = scene("a", "b", nomination_seconds=100)
    made.run("on-a@a", "on-b@b")
    pods = gang(2)
    made.driver.add(*pods)
    await made.look()
    assert len(holds(made)) == 2
    if what == "deleted":
        made.state.drop_pod(pods[0])
    elif what == "late":
        made.clock.now += 100
    else:
        made.driver.end("on-a")
        made.driver.add(pod("higher", memory=1000, priority=20))
    await made.preemptor.look()
    await made.driver.settle()
    await made.preemptor.look()
    assert holds(made) == {}


async def test_a_gang_is_not_scheduled_while_its_evictions_are_sent() -> None:
    """Where other cards become free meanwhile, the evictions would have been for nothing; afterwards it takes these."""
    made = scene("a", "b", "c", "d")
    made.run("on-a@a", "on-b@b")
    made.run("other-c@c", "other-d@d", priority=90)
    made.driver.add(*gang(2))
    placed: list[list[str]] = []

    async def others_end() -> None:
        placed.append(await end(made, ["other-c", "other-d"]))

    made.evictor.while_evicting = others_end
    assert sorted(await made.look()) == ["m0", "m1"]
    assert placed == [[]]


async def test_a_new_leader_holds_again_for_all_pods_of_a_gang() -> None:
    """One victim has ended, one is ending, and one was not evicted yet: that one goes as well."""
    made = scene("a", "b", "c", "d")
    made.run("on-b@b", "on-c@c")
    made.run("cheap@d", priority=-5)
    made.driver.begin_to_end("on-b")
    waiting = [with_nomination(each, name) for each, name in zip(gang(3), "abc", strict=True)]
    made.driver.add(*waiting)
    await made.preemptor.restore(waiting)
    await rest()
    assert len(holds(made)) == 3
    assert len(made.evictor.evicted) == 1
    assert len(made.evictor.nominated) == 3, "the gang is decided once"
    assert len(await end(made, ["on-b", *made.evictor.evicted])) == 3


async def test_a_new_leader_clears_the_nominations_of_a_gang_that_is_incomplete() -> None:
    """Nothing is held for it."""
    made = scene("a")
    made.run("on-a@a")
    waiting = with_nomination(member("m0"), "a")
    made.driver.add(waiting)
    await made.preemptor.restore([waiting])
    assert (made.evictor.cleared, holds(made)) == (["m0"], {})


async def test_a_gang_with_too_many_pods_without_place_preempts_none() -> None:
    """65 of them; 64 are searched for."""
    made = scene("a", cards=65)
    for number in range(65):
        made.run(f"low{number}@a", card=number)
    made.driver.add(*gang(65))
    await made.look()
    assert made.evictor.evicted == []
    assert why(made) == "more than 64 pods of gang default/train have no place"


async def test_all_pods_of_a_gang_preempt_in_one_block() -> None:
    """Victims in two blocks would be fewer and cheaper, but the gang names a block."""
    made = scene("a", "b", "c", "d")
    for name, rack in zip("abcd", ("r1", "r1", "r2", "r2"), strict=True):
        made.state.set_node(node(name, metadata={"name": name, "labels": {"rack": rack}}))
    made.run("on-a@a", "on-c@c", priority=1)
    made.run("on-b@b", priority=5)
    made.run("on-d@d", priority=90)
    made.driver.add(*gang(2, block="rack"))
    await made.look()
    assert sorted(made.evictor.evicted) == ["on-a", "on-b"]
    assert sorted(await end(made, ["on-a", "on-b"])) == ["m0", "m1"]


async def test_the_block_where_cards_are_held_for_a_gang_is_tried_first() -> None:
    """Of 17 blocks 16 are tried, those with the most free memory; the cards that are held count as used."""
    others = [f"other-{number}" for number in range(16)]
    made = scene("a", *others, cards=3)
    for name in ("a", *others):
        made.state.set_node(node(name, metadata={"name": name, "labels": {"rack": name}}))
    made.run("low@a")
    for number in (0, 1):
        made.run(*(f"{name}-{number}@{name}" for name in others), card=number, priority=90)
    made.driver.add(*gang(3, block="rack"))
    await made.look()
    assert made.evictor.evicted == ["low"]
    assert sorted(await end(made, ["low"])) == ["m0", "m1", "m2"]


async def test_pods_of_different_priority_in_a_gang_do_not_take_each_others_place() -> None:
    """What is held for the lesser one is not free for the more important one."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b")
    made.driver.add(member("m0", priority=5), member("m1", priority=10))
    await made.look()
    assert sorted(holds(made).values()) == ["a", "b"]
    assert sorted(await end(made, ["on-a", "on-b"])) == ["m0", "m1"]


async def test_a_pod_without_gpu_needs_only_a_place() -> None:
    """The launcher of an MPI job fits anywhere; for it no pod is evicted."""
    made = scene("a")
    made.run("on-a@a")
    made.driver.add(member("m0", priority=10), member("m1", memory=None, priority=10))  # type: ignore[arg-type]
    await made.look()
    assert made.evictor.evicted == ["on-a"]
    assert sorted(await end(made, ["on-a"])) == ["m0", "m1"]


async def test_a_gang_that_fits_by_now_preempts_none_and_holds_nothing() -> None:
    """It is scheduled as usual."""
    made = scene("a", "b")
    made.driver.add(*gang(2))
    chooser, found = made.preemptor.gang_chooser, made.state.gangs.get(TRAIN)
    assert chooser is not None
    assert found is not None
    *_, last = [None, *chooser.choose(found)]
    assert (last, holds(made)) == (None, {})
    assert why(made) == "its gang fits without"
    assert sorted(await made.driver.settle()) == ["m0", "m1"]


async def test_a_gang_without_enough_places_has_reclaimed_nothing() -> None:
    """What it tried does not count for its queue in this hour; what the next gang reclaims does."""
    made = scene("a", cards=4)
    for queue, spec in (("a", {"reclaim": "WithinTier"}), ("b", {})):
        made.state.limits.set_queue(gpu_queue(queue, **spec))
    let_run(made, "b", *range(4))

    async def reclaimed(name: str, count: int) -> int:
        pods, before = [member(f"{name}{at}", gang=name, size=count) for at in range(count)], len(made.evictor.evicted)
        for each in pods:
            each.metadata.labels = {**each.metadata.labels, QUEUE: "a"}
        made.driver.add(*pods)
        ended = await end_evicted(made)
        made.driver.add(*(of_queue("b", f"{each.metadata.name}+") for each in ended))
        for each in pods:
            if each.metadata.name in made.driver.running:
                made.driver.end(each.metadata.name)
            else:
                made.state.drop_pod(each)
        await made.driver.settle()
        made.clock.now += 100
        return len(made.evictor.evicted) - before

    assert [await reclaimed(name, count) for name, count in (("large", 3), ("first", 2), ("second", 2))] == [0, 2, 0]
