"""Over time each queue has the share to which its weight entitles it: the real queue, cycle and state, a fake clock."""

import heapq
import random
from collections import Counter
from fractions import Fraction

import pytest

from allocation import names
from scheduler.objects import Pod
from tests.scheduler.support.builders import Clock, lease, pod, state
from tests.scheduler.support.driving import Driver, gpu_queue

NODES, CARDS = 4, 8
TOTAL = NODES * CARDS
PODS = 12
"""The number of pods of each queue that wait at any time."""
WARM_UP = 60
"""Seconds after which every card has been freed at least once."""
LONGEST = 20


class Simulation:
    """Queues whose pods, each with a card of its own, run for a random time; each queue always has pods that wait."""

    def __init__(self, weights: dict[str, int], seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.weights = weights
        self.clock = Clock()
        self.driver = Driver(state(*(f"n{number}" for number in range(NODES)), clock=self.clock, cards=CARDS))
        for name, weight in weights.items():
            self.driver.state.limits.set_queue(gpu_queue(name, weight=weight))
        self.created: Counter[str] = Counter()
        self.ends: list[tuple[float, str]] = []

    def create(self, queue: str, pods: int) -> None:
        """Create pods of a queue."""
        for _ in range(pods):
            self.created[queue] += 1
            self.driver.add(self._pod(queue, f"{queue}-{self.created[queue]}"))

    def _pod(self, queue: str, name: str) -> Pod:
        labels = {names.QUEUE: queue}
        return pod(name, memory=1000, labels=labels, created=f"2026-01-01T00:00:00.{int(self.clock.now * 10):07d}Z")

    async def second(self) -> None:
        """Let a second pass: pods end, others come, and cards that are free are taken."""
        self.clock.now += 1
        for name in self.driver.state.ledger.nodes:
            self.driver.state.set_lease(lease(name, renewed=f"2026-01-01T00:00:00.{int(self.clock.now):06d}Z"))
        while self.ends and self.ends[0][0] <= self.clock.now:
            self.driver.end(heapq.heappop(self.ends)[1])
        held = self.held()
        for queue in self.weights:
            self.create(queue, max(0, held[queue] + PODS - self._alive(queue)))
        for name in await self.driver.settle():
            heapq.heappush(self.ends, (self.clock.now + self.chance.randint(1, LONGEST), name))

    def held(self) -> Counter[str]:
        """Return the cards of each queue, counted over its running pods."""
        return Counter(each.metadata.labels[names.QUEUE] for each in self.driver.running.values())

    def _alive(self, queue: str) -> int:
        waiting = sum(number for key, number in self.driver.state.queue.waiting.items() if key.name == queue)
        return waiting + self.held()[queue]

    def excess(self) -> dict[str, Fraction]:
        """Return by how many cards each queue has more than its entitlement, or less if it is below zero."""
        held, weights = self.held(), sum(self.weights.values())
        return {queue: held[queue] - Fraction(TOTAL * weight, weights) for queue, weight in self.weights.items()}


@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1, "b": 1},
        {"a": 1, "b": 4},
        {"a": 3, "b": 2, "c": 1, "d": 1, "e": 5},
    ],
    ids=["two equal ones", "two of weights 1 and 4", "five"],
)
async def test_each_queue_has_its_entitlement_within_one_pod(weights: dict[str, int]) -> None:
    """At every second after a warm-up, although a queue submitted 1,000 pods before all others came."""
    simulation = Simulation(weights, seed=sum(weights.values()))
    simulation.create("a", 1000)
    for name in await simulation.driver.settle():
        simulation.ends.append((simulation.clock.now + simulation.chance.randint(1, LONGEST), name))
    heapq.heapify(simulation.ends)
    assert simulation.held() == {"a": TOTAL}
    for second in range(200):
        await simulation.second()
        if second >= WARM_UP:
            excess = simulation.excess()
            assert all(abs(each) <= 1 for each in excess.values()), (second, excess)
    assert sum(simulation.held().values()) == TOTAL
