"""Random gangs that kube-scheduler brings in any order: at rest each is bound in whole, or holds nothing."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from scheduler.extender import gang_rehearsals
from tests.scheduler.support.builders import pod
from tests.scheduler.support.extending import delete
from tests.scheduler.support.gathering import Scene, member, settle

NODES = ("n1", "n2", "n3")


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, no rehearsal takes too long."""
    monkeypatch.setattr(gang_rehearsals, "_BUDGET_SECONDS", math.inf)


class Play:
    """Gangs of two namespaces and single pods on a few cards, and what is asked about them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- no secret
        self.scene = Scene(*NODES)
        self.calls: dict[str, asyncio.Task[str]] = {}
        self.sizes: dict[tuple[str, str], int] = {}

    def create(self) -> None:
        """Create a single pod, or some or all pods of a gang."""
        number, namespace = len(self.scene.pods), self.chance.choice(("default", "team"))
        if self.chance.random() < 0.2:
            self.scene.create(pod(f"s{number}", memory=1000, namespace=namespace))
            return
        name, size = self.chance.choice("abc"), self.chance.randint(2, 4)
        size = self.sizes.setdefault((namespace, name), size)
        for index in range(self.chance.randint(1, size)):
            made = member(f"{name}{number}-{index}", name, size=size, namespace=namespace)
            self.scene.create(made)

    async def ask(self, name: str) -> None:
        """Bring a pod, if a node takes it, as kube-scheduler does, to any of the nodes that do."""
        nodes = (await self.scene.filter(name)).nodenames
        if nodes and self.chance.random() < 0.9:
            self.calls[name] = self.scene.bind(name, self.chance.choice(list(nodes)))
        await settle()

    def remove(self, name: str) -> None:
        """Delete a pod, also one whose call waits."""
        delete(self.scene.extender, self.scene.pods.pop(name))

    async def step(self) -> None:
        """Do one thing."""
        for name in [name for name, task in self.calls.items() if task.done()]:
            if self.calls.pop(name).result() and name not in self.scene.pods:
                continue
        names, what = list(self.scene.pods), self.chance.random()
        idle = [name for name in names if name not in self.calls and name not in self.scene.api.bound]
        if what < 0.15 or not names:
            self.create()
        elif what < 0.2:
            self.remove(self.chance.choice(names))
        elif what < 0.8 and idle:
            await self.ask(self.chance.choice(idle))
        else:
            await self.scene.look(self.chance.choice((0.0, 0.5, 5.0)))

    def check(self) -> None:
        """Check what is always so: of one gang at most, pods wait with reserved cards."""
        scene = self.scene
        waiting = {
            str(gang.key)
            for gang in scene.state.gangs
            if not gang.is_committing and any(uid in scene.reserved for uid in gang.nodes)
            if not {uid.removeprefix("uid-") for uid in gang.nodes} <= scene.api.bound.keys()
        }
        assert len(waiting) <= 1

    def check_at_rest(self) -> None:
        """Check that what is reserved is bound."""
        scene = self.scene
        assert {uid.removeprefix("uid-") for uid in scene.reserved} <= scene.api.bound.keys()

    def bound_of(self, key: tuple[str, str]) -> int:
        """Return how many pods of a gang have ever been bound."""
        namespace, name = key
        return sum(
            each["metadata"]["namespace"] == namespace and each["metadata"]["name"].startswith(name)
            for each in self.scene.api.written
        )


@pytest.mark.parametrize("seed", range(40))
async def test_gangs_are_bound_in_whole_or_hold_nothing(seed: int) -> None:
    """However pods come, go and are refused, and however time passes."""
    play = Play(seed)
    for _ in range(120):
        await play.step()
        play.check()
    await play.scene.look(30)
    await settle()
    play.check_at_rest()
    for key, size in play.sizes.items():
        assert play.bound_of(key) == 0 or play.bound_of(key) >= size
