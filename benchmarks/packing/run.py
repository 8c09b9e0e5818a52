"""Runs policies on workloads: until so much has arrived, or for days with tasks that end."""

import bisect
import heapq
import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benchmarks.packing.fleet import Choice, Fleet
from benchmarks.packing.reference import Policy
from benchmarks.packing.workload import Task, Workload

MARKS: Final = (1.0, 1.1, 1.3)
"""How much has arrived when the result is read, as a share of the fleet's cards."""
_POINTS: Final = 0.02
_DAY_S: Final = 86_400.0

MakePolicy = Callable[[Fleet], Policy]


class Arrived(msgspec.Struct, frozen=True):
    """The result of a policy with tasks that never end.

    Attributes:
        allocated: the share of the fleet's cards that is allocated at each of `MARKS`.
        failed: the GPU tasks that found no node, at each of `MARKS`.
        line: points of the arrived and the allocated share.
        seconds: the processor time that each decision took.
    """

    allocated: list[float]
    failed: list[int]
    line: list[tuple[float, float]]
    seconds: list[float]


def arrive(workload: Workload, make: MakePolicy, *, seed: int) -> Arrived:
    """Let tasks arrive, drawn by `seed`; each is tried once."""
    fleet = Fleet(workload.machines)
    policy, marks, found = make(fleet), [*MARKS], Arrived([], [], [], [])
    arrived = allocated = failed = 0
    for task in workload.drawn(seed, until=MARKS[-1]):
        arrived += task.size
        begin = time.process_time()
        choice = policy.choose(task)
        found.seconds.append(time.process_time() - begin)
        if choice is not None:
            fleet.add(task, choice)
            allocated += task.size
        elif task.cards:
            failed += 1
        if not found.line or arrived >= (found.line[-1][0] + _POINTS) * workload.size:
            found.line.append((arrived / workload.size, allocated / workload.size))
        while marks and arrived >= marks[0] * workload.size:
            del marks[0]
            found.allocated.append(allocated / workload.size)
            found.failed.append(failed)
    return found


def turn_over(workload: Workload, make: MakePolicy, *, seed: int, load: float, days: float) -> float:
    """Return the share of the cards that is allocated, on average over some days in which tasks come and end.

    At the beginning there are tasks as at any time, so long ones prevail, at a random moment of their lives. Then tasks
    arrive at random such that on average `load` times the cards are requested; one that finds no node is lost.
    """
    return _TurnOver(workload, make, seed=seed, load=load).run(days * _DAY_S)


class _TurnOver:
    """One run."""

    def __init__(self, workload: Workload, make: MakePolicy, *, seed: int, load: float) -> None:
        self._workload = workload
        self._load = load
        self._chance = random.Random(seed)
        self._fleet = Fleet(workload.machines)
        self._policy = make(self._fleet)
        self._lives = [max(each.lasts, 1.0) for each in workload.arrivals]
        self._ends: list[tuple[float, int, Task, Choice]] = []
        self._now = self._area = 0.0
        self._allocated = 0

    def run(self, seconds: float) -> float:
        arrivals, chance, size = self._workload.arrivals, self._chance, self._workload.size
        requested, cumulated = 0, list(itertools.accumulate(self._lives))
        while requested < self._load * size:
            number = bisect.bisect(cumulated, chance.random() * cumulated[-1])
            requested += arrivals[number].task.size
            self._place(arrivals[number].task, chance.random() * self._lives[number])
        work = sum(each.task.size * life for each, life in zip(arrivals, self._lives, strict=True)) / len(arrivals)
        rate = self._load * size / work
        while True:
            following = self._now + chance.expovariate(rate)
            self._wait(min(following, seconds))
            if following >= seconds:
                return self._area / seconds / size
            number = chance.randrange(len(arrivals))
            self._place(arrivals[number].task, self._lives[number])

    def _place(self, task: Task, seconds: float) -> None:
        choice = self._policy.choose(task)
        if choice is not None:
            self._fleet.add(task, choice)
            self._allocated += task.size
            heapq.heappush(self._ends, (self._now + seconds, len(self._fleet.changed), task, choice))

    def _wait(self, until: float) -> None:
        """Let time pass, and tasks end."""
        while self._ends and self._ends[0][0] <= until:
            at, _, task, choice = heapq.heappop(self._ends)
            self._advance(at)
            self._fleet.remove(task, choice)
            self._policy.end(task, choice)
            self._allocated -= task.size
        self._advance(until)

    def _advance(self, to: float) -> None:
        self._area += self._allocated * (to - self._now)
        self._now = to


def mean(values: Sequence[float]) -> float:
    """Return the mean of some values."""
    return sum(values) / len(values)
