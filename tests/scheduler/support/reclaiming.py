"""Queues that reclaim cards from each other, on the real state, queue, cycle and preemptor."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from allocation import names
from tests.scheduler.support.builders import pod
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.preemption_scene import Scene

if TYPE_CHECKING:
    from scheduler.objects import Pod


def of_queue(queue: str, name: str, **more: Any) -> Pod:
    """Return a pod of a queue that requests a whole card."""
    return pod(name, **{"memory": 1000, "labels": {names.QUEUE: queue}, **more})


def scene_of(*nodes: str, cards: int, queues: dict[str, dict[str, Any]], **more: Any) -> Scene:
    """Return a cluster with GpuQueues, given by their specs."""
    scene = Scene(*nodes, cards=cards, **more)
    for name, spec in queues.items():
        scene.state.limits.set_queue(gpu_queue(name, **spec))
    return scene


def let_run(scene: Scene, queue: str, *cards: int, node: str = "a", **more: Any) -> None:
    """Let pods of a queue run, called by the queue and the number of their card."""
    for card in cards:
        scene.run(f"{queue}-{card}@{node}", card=card, **{"labels": {names.QUEUE: queue}, **more})


def held(scene: Scene) -> Counter[str]:
    """Return the cards of each queue, counted over its running pods."""
    return Counter(each.metadata.labels[names.QUEUE] for each in scene.driver.running.values())


async def end_evicted(scene: Scene) -> list[Pod]:
    """Look once, and let the pods end that were evicted; return them."""
    await scene.look()
    ended = [each for each in scene.driver.running.values() if each.metadata.deletion_timestamp]
    for each in ended:
        scene.driver.end(each.metadata.name)
    await scene.driver.settle()
    return ended
