"""Patience of gangs: cards are held for all pods of one or for none, and it gets its turn among small pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.metadata import timestamp
from scheduler.gangs.gang import GangKey
from scheduler.holds import Hold
from tests.scheduler.patience.test_patience import IDLE, LONGEST, PATIENCE, World, wait
from tests.scheduler.support.builders import node, pod
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.gang_driving import member

YOUNG = "2026-01-03T00:00:00Z"


def gang(count: int, *, size: int = 0, name: str = "train", **more: Any) -> list[Any]:
    """Return `count` pods of a gang, younger than every slice, that need a whole card each."""
    numbers = range(count)
    return [member(f"{name}{each}", gang=name, size=size or count, created=YOUNG, **more) for each in numbers]


def runs(world: World, count: int, name: str = "train") -> bool:
    """Whether the first `count` pods of a gang run."""
    return all(world.runs(f"{name}{number}") for number in range(count))


async def test_a_stream_of_slices_does_not_keep_a_gang_waiting_for_ever() -> None:
    """It gets three cards of two nodes at the same time, after its patience and the longest slice."""
    world = World("n0", "n1")
    await world.run(20)
    world.driver.add(*gang(3))
    waited = await world.run(300, until=lambda: runs(world, 3))
    assert runs(world, 3)
    assert PATIENCE <= waited <= PATIENCE + LONGEST + 2
    assert not world.driver.state.holds
    assert sum("for 3 pods of gang default/train" in note for note in world.events.notes) == 3


async def test_without_patience_a_gang_waits() -> None:
    """The stream is such that it would wait as long as anybody looks."""
    world = World("n0", "n1", patience=0)
    await world.run(20)
    world.driver.add(*gang(3))
    await world.run(300)
    assert not runs(world, 1)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    singles=st.lists(st.sampled_from([500, 1000]), max_size=2),
    spare=st.integers(0, 1),
)
async def test_every_gang_gets_its_turn(sizes: list[int], singles: list[int], spare: int) -> None:
    """Whatever gangs and single pods wait beside each other; at every moment all or none of a gang have holds."""
    world, served = World("n0", "n1"), set[int]()
    await world.run(15)
    for number, size in enumerate(sizes):
        world.driver.add(*gang(size + spare, size=size, name=f"g{number}-", namespace=f"team{number}"))
    for number, memory in enumerate(singles):
        world.driver.add(pod(f"single{number}", memory=memory, namespace=f"one{number}", created=YOUNG))

    def are_served() -> bool:
        for number, size in enumerate(sizes):
            found = world.driver.state.gangs.get(GangKey(f"team{number}", f"g{number}-"))
            held = sum(world.driver.state.holds.of(uid) is not None for uid in found.waiting) if found else 0
            placed = len(found.nodes) if found else 0
            assert (held in (0, size) and placed == 0) or placed >= size
            if placed >= size:
                served.add(number)
        for name in [each for each in world.driver.running if each.startswith(("single", "g"))]:
            world.driver.end(name)
        return len(served) == len(sizes)

    turns = len(sizes) + len(singles)
    await world.run(int(PATIENCE) + turns * 2 * LONGEST, until=are_served)
    assert len(served) == len(sizes)


async def test_cards_are_held_for_all_pods_of_a_gang_or_for_none() -> None:
    """Five cards do not exist, so nothing is held, and the stream goes on."""
    world = World("n0", "n1")
    await world.run(20)
    world.driver.add(*gang(5))
    for _ in range(200):
        await world.run(1)
        assert not world.driver.state.holds


async def test_a_gang_counts_as_one_hold() -> None:
    """In a small fleet no other pod has one meanwhile, although all pods of the gang have."""
    world = World("n0", "n1")
    await world.run(20)
    world.driver.add(*gang(2), *(pod(f"w{number}", memory=1000, namespace=f"t{number}") for number in range(2)))
    seen = set()
    for _ in range(150):
        await world.run(1)
        seen.add(frozenset(hold.unit for hold in world.driver.state.holds))
    assert frozenset({GangKey("default", "train")}) in seen
    assert all(len(units) <= 1 for units in seen)


@pytest.mark.parametrize("what", ["deleted", "cordoned"])
async def test_the_holds_of_a_gang_end_together(what: str) -> None:
    """With one of its pods, or with the node of one."""
    world = World("n0", "n1")
    await world.run(20)
    pods = gang(3)
    world.driver.add(*pods)
    await world.run(200, until=lambda: bool(world.driver.state.holds))
    assert len(world.driver.state.holds) == 3
    if what == "deleted":
        world.driver.state.drop_pod(pods[1])
    else:
        world.driver.state.set_node(node("n0", spec={"unschedulable": True}))
    await world.patience.look()
    assert not world.driver.state.holds


async def test_the_holds_of_a_gang_are_given_up_together() -> None:
    """Two pods that never end have the cards; one ends, and then none for long."""
    world = World("n0")
    world.driver.add(*(pod(f"other{number}", memory=1000, namespace="other") for number in range(2)))
    await world.driver.settle()
    world.driver.add(*gang(2))
    await wait(world, int(PATIENCE) + 2)
    assert len(world.driver.state.holds) == 2
    await wait(world, int(IDLE) - 5)
    world.driver.end("other0")
    await wait(world, int(IDLE) - 5)
    assert len(world.driver.state.holds) == 2
    await wait(world, 10)
    assert not world.driver.state.holds
    assert sum("for gang default/train has finished for 60 s" in note for note in world.events.notes) == 2


async def test_a_gang_for_which_others_are_evicted_keeps_what_is_held_for_it() -> None:
    """However long it waits; its third pod, without a hold, stands for it in the queue."""
    world = World("n0")
    world.driver.add(*(pod(f"other{number}", memory=1000, namespace="other") for number in range(2)))
    await world.driver.settle()
    pods, state = gang(3, size=2), world.driver.state
    world.driver.add(*pods)
    await world.driver.settle()
    for each in pods[1:]:
        key, rank = state.fair_share.key(each), state.fair_share.pod_rank(each)
        unit = GangKey("default", "train")
        state.holds.add(Hold(each.uid, key, rank, "n0", (), frozenset(), "preemption", 10**6, unit), each)
    before = {*state.holds}
    await wait(world, 2 * int(PATIENCE))
    assert {*state.holds} == before


async def test_held_cards_of_a_gang_are_within_its_quota() -> None:
    """Its queue may have two cards, and it needs three: nothing is held."""
    world = World("n0", "n1")
    world.driver.state.limits.set_queue(gpu_queue("q", limits={"nvidia.com/gpu": 2}))
    await world.run(20)
    pods = gang(3)
    for each in pods:
        each.metadata.labels = {**each.metadata.labels, "gpu.scheduling/queue": "q"}
    world.driver.add(*pods)
    for _ in range(150):
        await world.run(1)
        assert not world.driver.state.holds


async def test_what_is_held_for_a_spare_pod_ends_when_its_gang_needs_it() -> None:
    """It waits alone as long as the others run; then it is of no use without another one."""
    world = World("n0", "n1")
    world.driver.add(*(pod(f"other{number}", memory=1000, namespace="other") for number in range(2)))
    await world.driver.settle()
    world.driver.add(*gang(3, size=2))
    await wait(world, int(PATIENCE) + 2)
    (hold,) = world.driver.state.holds
    assert hold.gang is None
    for name in [each for each in world.driver.running if each.startswith("train")]:
        world.driver.end(name)
    await world.patience.look()
    assert not world.driver.state.holds


# ---- a new leader ----------------------------------------------------------------------------------------------------


def condition(world: World, seconds: float, reason: str = "Unschedulable") -> dict[str, Any]:
    """Return the status of a pod that has been unschedulable for so long."""
    since = timestamp(world.unix() - seconds)
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": since}]}


async def waited(status: dict[str, Any] | None, created: float = 10_000, seconds: int = 1) -> bool:
    """Whether cards are held for a pod that this leader has seen for a moment, so long after its creation."""
    world = World("n0")
    world.driver.add(*(pod(f"other{number}", memory=1000, namespace="other") for number in range(2)))
    await world.driver.settle()
    since = timestamp(world.unix() - created)
    world.driver.add(pod("whole", memory=1000, created=since, status=status))
    await wait(world, seconds)
    return bool(world.driver.state.holds)


@pytest.mark.parametrize("seconds", [PATIENCE + 5, PATIENCE - 5])
async def test_a_new_leader_counts_from_the_condition_of_the_pod(seconds: float) -> None:
    """Since when it is not scheduled, whatever the reasons were; not from when this leader saw it first."""
    world = World("n0")
    assert await waited(condition(world, seconds)) == (seconds > PATIENCE)


async def test_without_a_condition_the_creation_counts() -> None:
    """The leader ended before it wrote one."""
    assert await waited(None, created=PATIENCE + 5)
    assert not await waited(None, created=PATIENCE - 5)


async def test_the_time_behind_scheduling_gates_does_not_count() -> None:
    """Nor does a condition from before the creation of the pod, which its status may claim."""
    world = World("n0")
    assert not await waited(condition(world, 10_000, "SchedulingGated"))
    assert not await waited(condition(world, 10_000), created=PATIENCE - 5)


async def test_metrics_still_count_from_when_this_leader_saw_the_pod() -> None:
    """The time in the queue is that of this process; only patience goes back further."""
    world = World("n0")
    status = condition(world, 500)
    world.driver.add(pod("whole", memory=1000, created=timestamp(world.unix() - 1000), status=status))
    entry = world.driver.state.queue.get("uid-whole")
    assert entry is not None
    assert (entry.since, entry.since - entry.waits_since) == (world.clock.now, 500)
