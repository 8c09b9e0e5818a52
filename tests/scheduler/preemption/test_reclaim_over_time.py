"""Reclaim over hours: queues get their shares, few pods are evicted, and none in turn."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from allocation.names import QUEUE
from cluster.metadata import timestamp
from tests.scheduler.support.preemption_scene import NOW
from tests.scheduler.support.reclaiming import end_evicted, held, of_queue, scene_of
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from scheduler.objects import Pod

pytestmark = pytest.mark.long
NODES, CARDS = ("x", "y", "z"), 8
TOTAL = len(NODES) * CARDS
STEP = 30
HOUR = 3600 // STEP
PHASE = 2 * HOUR
"""The steps after which other queues have pods."""


class Simulation:
    """Queues whose pods run for a random time, and are created again when they are evicted.

    Attributes:
        reclaims: the owners of each preemptor and of its victim: an owner creates a pod again, with another name.
    """

    def __init__(self, weights: dict[str, int], seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.weights = weights
        self.seconds = 0
        queues = {
            name: {"weight": weight, "reclaim": "WithinTier", "reclaimAfterSeconds": 300}
            for name, weight in weights.items()
        }
        self.scene = scene_of(*NODES, cards=CARDS, queues=queues, unix=self.unix)
        self.scene.evictor.on_eviction = self._evicted
        self.busy = set(weights)
        self.created = 0
        self.owners: dict[str, str] = {}
        self.ends: list[tuple[float, str]] = []
        self.reclaims: list[tuple[int, str, str]] = []

    def unix(self) -> float:
        """Return the time of the pods."""
        return NOW + self.seconds

    def create(self, queue: str, owner: str = "") -> None:
        """Create a pod."""
        self.created += 1
        name = f"{queue}-{self.created}"
        self.owners[name] = owner or name
        self.scene.driver.add(of_queue(queue, name, created=timestamp(self.unix())))

    async def step(self) -> None:
        """Let half a minute pass."""
        self.seconds += STEP
        self.scene.clock.now += STEP
        while self.ends and self.ends[0][0] <= self.seconds:
            name = heapq.heappop(self.ends)[1]
            if name in self.scene.driver.running:
                self.scene.driver.end(name)
        for queue in sorted(self.busy):
            waiting = sum(number for key, number in self.scene.state.queue.waiting.items() if key.name == queue)
            for _ in range(TOTAL - waiting - held(self.scene)[queue]):
                self.create(queue)
        before = set(self.scene.driver.running)
        for each in await end_evicted(self.scene):
            self.create(each.metadata.labels[QUEUE], self.owners[each.metadata.name])
        for name in sorted(set(self.scene.driver.running) - before):
            heapq.heappush(self.ends, (self.seconds + self.chance.choice((600, 3600, 40000)), name))

    def _evicted(self, preemptor: Pod, victim: Pod) -> None:
        owners = self.owners[preemptor.metadata.name], self.owners[victim.metadata.name]
        self.reclaims.append((self.seconds, *owners))

    def idle(self, queue: str) -> None:
        """Let a queue create no more pods, and forget those that wait."""
        self.busy.discard(queue)
        for entry in self.scene.state.queue:
            if entry.key.name == queue:
                self.scene.state.drop_pod(entry.pod)

    def excess(self) -> dict[str, Fraction]:
        """Return by how many cards each queue with pods has more than its entitlement."""
        have = held(self.scene)
        of_pods = {queue: weight for queue, weight in self.weights.items() if queue in self.busy or have[queue]}
        return {
            queue: have[queue] - Fraction(TOTAL * weight, sum(of_pods.values())) for queue, weight in of_pods.items()
        }


@pytest.mark.parametrize("seed", range(repetitions(1, 5)))
@pytest.mark.parametrize("weights", [{"a": 1, "b": 3}, {"a": 3, "b": 2, "c": 1}], ids=["two", "three"])
async def test_queues_that_come_and_go_get_their_shares(weights: dict[str, int], seed: int) -> None:
    """Within one pod at the end of each two hours, in which one queue has no pods, or another one."""
    simulation = Simulation(weights, seed)
    for phase in range(6):
        idle = [*weights, None][phase % (len(weights) + 1)]
        simulation.busy = set(weights)
        if idle is not None:
            simulation.idle(idle)
        for _ in range(PHASE):
            await simulation.step()
        excess = simulation.excess()
        assert all(excess[queue] >= -1 for queue in simulation.busy), (phase, excess)
        assert idle is not None or all(each <= 1 for each in excess.values()), (phase, excess)
    check_evictions(simulation)


def check_evictions(simulation: Simulation) -> None:
    """Check that evictions are bounded in each hour, and that no two pods reclaim in turn."""
    assert simulation.reclaims
    of_hour = Counter(seconds // 3600 for seconds, _, _ in simulation.reclaims)
    assert all(count <= TOTAL for count in of_hour.values()), of_hour
    pairs = Counter(frozenset((preemptor, victim)) for _, preemptor, victim in simulation.reclaims)
    assert all(count == 1 for count in pairs.values()), pairs
