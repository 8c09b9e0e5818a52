"""Pods that wait because of a DeviceClass get an event that says so, each once, and few at a time."""

from __future__ import annotations

from typing import Any

from cluster.api import Api
from cluster.events import Recorder
from cluster.informer import Informer
from cluster.metadata import Reference
from cluster.resource import PODS
from scheduler.dra.device_classes import DeviceClasses
from scheduler.dra.waiting_pods import WaitingPodReporter
from scheduler.objects import Pod
from tests.scheduler.dra.test_device_classes import device_class
from tests.scheduler.support.builders import pod


class Events(Recorder):
    """Keeps the names of the pods that get an event."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def record(self, regarding: Reference, **_: Any) -> None:
        """Keep a name."""
        self.noted.append(regarding.name)


class World:
    """A reporter, its classes, its pods, and the pods that got an event."""

    def __init__(self) -> None:
        self.classes = DeviceClasses(
            ["nvidia.com/gpu", "nvidia.com/gpumem"], on_found=lambda _: None, on_ended=lambda: None
        )
        self.pods = Informer(Api.__new__(Api), PODS, Pod)
        self.events = Events()
        self.reporter = WaitingPodReporter(
            self.classes,
            pods=self.pods,
            names=frozenset({"tranche"}),
            recorder=self.events,
            is_trusted=lambda: True,
        )

    async def looked(self, times: int = 1) -> list[str]:
        """Look, and return who got an event."""
        self.events.noted.clear()
        for _ in range(times):
            await self.reporter.look()
        return self.events.noted


async def test_waiting_pod_gets_one_event_for_each_conflict() -> None:
    """Not at the first look: kube-scheduler may just be about to place it."""
    world = World()
    world.pods.add_if_new(pod("p", memory=1))
    assert await world.looked(2) == []
    world.classes.set(device_class())
    assert await world.looked() == []
    assert await world.looked(3) == ["p"]
    world.classes.set(device_class("nvidia.com/gpumem", "second"))
    assert await world.looked(2) == ["p"]
    world.classes.drop(device_class("nvidia.com/gpumem", "second"))
    world.classes.set(device_class(""))
    assert await world.looked(2) == []


async def test_pods_that_do_not_wait_for_us_get_no_event() -> None:
    """Those with a node, of another scheduler, finished, or without the resource."""
    world = World()
    world.classes.set(device_class())
    zero = {"limits": {"nvidia.com/gpu": "0"}}
    for each in (
        pod("placed", memory=1, node="n1"),
        pod("other", memory=1, schedulerName="default-scheduler"),
        pod("finished", memory=1, phase="Failed"),
        pod("plain"),
        pod("zero", containers=[{"name": "main", "resources": zero}]),
    ):
        world.pods.add_if_new(each)
    assert await world.looked(3) == []


async def test_few_pods_get_an_event_at_a_time() -> None:
    """Others follow at the next look."""
    world = World()
    world.classes.set(device_class())
    for number in range(30):
        world.pods.add_if_new(pod(f"p-{number}", memory=1))
    assert len(await world.looked(2)) == 20
    assert len(await world.looked()) == 10
    assert await world.looked(3) == []
