"""However many different pods of one tenant wait, preemption for another's is soon tried, and no pod is blocked."""

from __future__ import annotations

import itertools

from allocation.steps import finish
from scheduler.preemption import waiting_pod
from scheduler.preemption.waiting_pod import WaitingPod
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preemption_scene import Scene

MANY = 700


async def crowded(count: int = MANY, **settings: int) -> Scene:
    """Return a cluster in which `count` different pods of one namespace wait that fit no card, however many go."""
    scene = Scene("a", **settings)
    scene.run("victim@a")
    scene.driver.add(*(pod(f"p{each}", memory=1001 + each, priority=10, namespace="many") for each in range(count)))
    assert await scene.driver.settle() == []
    return scene


def first(scene: Scene, *, most: int = 8) -> list[str]:
    """Return the names of the pods for which preemption is tried next, in order."""
    found = finish(waiting_pod.of_queue(scene.state)(lambda _: True, lambda _: True, most))
    return [each.pod.metadata.name for each in found]


async def test_waiting_pods_are_compared_in_short_steps() -> None:
    """Other work goes on between them, also if no pod is due."""
    scene, compared = await crowded(), list[str]()

    def may(waiting: WaitingPod) -> bool:
        compared.append(waiting.pod.uid)
        return len(compared) % 2 == 0

    steps = waiting_pod.of_queue(scene.state)(lambda _: True, may, 8)
    after_each = [0, *(len(compared) for _ in steps)]
    assert after_each[-1] == MANY
    assert max(later - before for before, later in itertools.pairwise(after_each)) <= 128


async def test_few_pods_of_each_queue_are_next() -> None:
    """The oldest of each, in the order of all."""
    scene = await crowded(20)
    scene.driver.add(pod("of-few", memory=1001, priority=10, namespace="few"))
    scene.driver.add(pod("important", memory=1001, priority=11, namespace="few"))
    await scene.driver.settle()
    assert first(scene, most=3) == ["important", "p0", "p1", "p2", "of-few"]


async def test_queue_beyond_its_budget_comes_last() -> None:
    """Whatever the priority and the age of its pods."""
    scene = await crowded(2)
    scene.driver.add(pod("of-few", memory=1001, priority=1, namespace="few"))
    await scene.driver.settle()
    assert first(scene) == ["p0", "p1", "of-few"]
    entry = scene.state.queue.get("uid-p0")
    assert entry is not None
    scene.state.queue.charge(entry, 10.0, placed=False)
    assert first(scene) == ["of-few", "p0", "p1"]


async def test_pod_behind_many_of_another_tenant_preempts_after_few_searches() -> None:
    """700 different pods that wait longer, and for which no pod can be preempted: eight searches come first."""
    scene = await crowded()
    scene.driver.add(pod("modest", memory=1000, priority=10, namespace="few"))
    await scene.look()
    assert scene.evictor.nominated == ["modest@a"]
    assert scene.chooser.asked <= 9


async def test_as_many_pods_of_a_queue_are_tried_as_may_preempt_at_the_same_time() -> None:
    """By the setting, in one look; those without candidates pause."""
    scene = await crowded(5, concurrent=2)
    for tried in (2, 4, 5):
        await scene.preemptor.look()
        assert scene.chooser.asked == tried


async def test_pod_behind_many_of_its_own_tenant_has_its_turn() -> None:
    """Those before it pause, each longer than the time before."""
    scene = await crowded(100)
    scene.driver.add(pod("modest", memory=1000, priority=10, namespace="many"))
    looks = 0
    while not scene.evictor.nominated:
        await scene.look()
        looks += 1
        assert looks < 20
    assert scene.evictor.nominated == ["modest@a"]
