"""Pods that come and go all the time: each is created until it is admitted, and lives until its turn to go comes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from chaos.books import Books
from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import PODS

_PAUSE_SECONDS = 0.3
_SIZES = (2_000, 4_000, 8_000, 16_000)


class Load:
    """The pods of one run.

    Attributes:
        rate: how many are created a second; it may change at any time.
        created: how many the API server has taken.
        deleted: how many were deleted again.
        refused: how often a creation had to be asked again, because admission or the API server was away.
    """

    def __init__(self, api: Api, *, namespace: str, books: Books, draw: Random, rate: float, population: int) -> None:
        """Create `rate` pods a second as long as fewer than `population` live; read in `books` who does."""
        self._api = api
        self._namespace = namespace
        self._books = books
        self._draw = draw
        self.rate = rate
        self._population = population
        self._living: dict[str, None] = {}
        self._asking = 0
        self._task: asyncio.Task[None]
        self.created = 0
        self.deleted = 0
        self.refused = 0

    @asynccontextmanager
    async def coming_and_going(self) -> AsyncIterator[None]:
        """Keep pods coming and going while the block runs; who lives then stays."""
        async with asyncio.TaskGroup() as group:
            self._task = group.create_task(self._run())
            try:
                yield
            finally:
                self._task.cancel()

    def stop(self) -> None:
        """Create and delete no more: who lives now stays."""
        self._task.cancel()

    async def _run(self) -> None:
        names = _names()
        async with asyncio.TaskGroup() as group:
            while True:
                if len(self._living) + self._asking < self._population:
                    group.create_task(self._create(next(names)))
                if len(self._living) > self._population * 3 // 4:
                    group.create_task(self._delete(self._choose()))
                await asyncio.sleep(self._draw.uniform(0.5, 1.5) / self.rate)

    def _choose(self) -> str:
        """Choose who goes: mostly one that has a node, now and then one that may still wait; he counts no more."""
        bound = [name for each in self._books.bound() if (name := each.partition("/")[2]) in self._living]
        name = self._draw.choice(bound if bound and self._draw.random() > 0.1 else list(self._living))
        del self._living[name]
        return name

    async def _create(self, name: str) -> None:
        """Create a pod, however often that takes: what a controller does for its pods."""
        self._asking += 1
        pod = manifest(name, self._draw)
        while True:
            try:
                await self._api.create(PODS, pod, namespace=self._namespace)
            except ConflictError:
                break  # an earlier try was taken
            except ClusterError:
                self.refused += 1
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                break
        self._asking -= 1
        self._living[name] = None
        self.created += 1

    async def _delete(self, name: str) -> None:
        while True:
            try:
                await self._api.request("DELETE", PODS.path(namespace=self._namespace, name=name))
            except NotFoundError:
                return  # an earlier try was taken, or its node went, and it with that
            except ClusterError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self.deleted += 1
                return


def manifest(name: str, draw: Random) -> dict[str, Any]:
    """Answer a pod of some shape: mostly a share of a card, now and then several cards, a whole one, two containers."""
    shape = draw.random()
    share = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(draw.choice(_SIZES)), "nvidia.com/gpucores": "10"}
    if shape < 0.75:
        limits = [share]
    elif shape < 0.85:
        limits = [{**share, "nvidia.com/gpu": "2"}]
    elif shape < 0.93:
        limits = [share, {**share, "nvidia.com/gpumem": "1000"}]
    elif shape < 0.98:
        limits = [{"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25", "nvidia.com/gpucores": "20"}]
    else:
        limits = [{"nvidia.com/gpu": "1"}]
    containers = [
        {"name": f"c{number}", "image": "none", "resources": {"limits": each}} for number, each in enumerate(limits)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": containers},
    }


def _names() -> Iterator[str]:
    number = 0
    while True:
        yield f"p{number:06}"
        number += 1
