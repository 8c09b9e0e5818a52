"""Pods that are handed over say that no kube-scheduler runs, each once, few at a time, and each in its turn."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.api import Api
from cluster.errors import ApiError
from cluster.metadata import unix_seconds
from scheduler.dra import handed_over_pods
from scheduler.dra.handed_over_pods import HandedOverPods
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.objects import Pod
from scheduler.settings import KubeSchedulerSettings
from tests.scheduler.dra.test_waiting_pods import Events
from tests.scheduler.support.builders import Clock, pod
from tests.scheduler.support.fencing import fenced

CREATED = "2026-01-01T00:00:00Z"


class Statuses(Api):
    """An API server that keeps the names of the pods whose status is written, and refuses that for `refused`."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.refused: set[str] = set()

    async def request(self, _method: str, path: str, **_: Any) -> bytes:
        """Keep a name."""
        name = path.split("/")[-2]
        if name in self.refused:
            raise ApiError(request=path, status=422, reason="Invalid", message="in this test")
        self.written.append(name)
        return b"{}"


class World:
    """Pods without a node, and a kube-scheduler that is silent after 30 s."""

    def __init__(self, count: int = 1) -> None:
        self.clock, self.api, self.events = Clock(), Statuses(), Events()
        self.age = 30.0
        self.pods: dict[str, Pod] = {}
        for number in range(count):
            made = pod(f"p{number}", created=CREATED)
            self.pods[made.uid] = made
        self.reporter = HandedOverPods(
            fenced(self.api),
            pods=self.pods,
            lease=KubeSchedulerLease(self.api, KubeSchedulerSettings(), clock=self.clock),
            recorder=self.events,
            unix=lambda: unix_seconds(CREATED) + self.age,
        )

    async def looked(self) -> list[str]:
        """Look, and return whose status was written."""
        self.api.written.clear()
        await self.reporter.look()
        return [*self.api.written]


async def test_pod_is_written_once_in_each_silence() -> None:
    """Not while a kube-scheduler runs, and not before the pod has waited for as long."""
    world = World()
    assert await world.looked() == []
    world.clock.now += 30
    world.age = 29.0
    assert await world.looked() == []
    world.age = 30.0
    assert await world.looked() == ["p0"]
    assert world.events.noted == ["p0"]
    assert await world.looked() == []
    lease = world.reporter._lease
    lease._renewed_at = world.clock.now
    assert await world.looked() == []
    world.clock.now += 30
    assert await world.looked() == ["p0"]


async def test_few_pods_are_written_at_a_time() -> None:
    """All of them in the end; a pod that is gone is forgotten."""
    world = World(50)
    world.clock.now += 30
    written = [await world.looked() for _ in range(4)]
    assert [len(each) for each in written] == [20, 20, 10, 0]
    world.pods.clear()
    await world.looked()
    assert world.reporter._written == set()


async def test_pods_that_cannot_be_written_keep_no_others_from_their_turn() -> None:
    """Such as those that a policy protects: each has a turn again after all others, as long as they wait."""
    world = World(50)
    world.clock.now += 30
    world.api.refused = {f"p{number}" for number in range(40)}
    written = [name for _ in range(3) for name in await world.looked()]
    assert sorted(written) == [f"p{number}" for number in range(40, 50)]
    world.api.refused = {"p0"}
    written = [name for _ in range(3) for name in await world.looked()]
    assert sorted(written) == sorted(f"p{number}" for number in range(1, 40))


async def test_few_pods_are_looked_at_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are not late yet are passed over, and those behind them have their turn."""
    monkeypatch.setattr(handed_over_pods, "_LOOKS", 10)
    world = World(30)
    late = pod("late", created="2025-12-31T23:59:50Z")
    world.pods[late.uid] = late
    world.clock.now += 30
    world.age = 25.0
    assert [await world.looked() for _ in range(5)] == [[], [], [], ["late"], []]
