"""The load: pods that are created and deleted all the time. Each creation is retried until admission accepts it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from chaos.books import Books
from chaos.gangs import SIZE
from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import GPU_CLAIMS, PODS

_PAUSE_SECONDS = 0.3
URGENT = "chaos-urgent"
"""The PriorityClass of pods that preempt others."""
_URGENT_SHARE = 0.02
_SIZES = (2_000, 4_000, 8_000, 16_000)
_CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "exclusive": {"count": 1},
    "exclusive-two": {"count": 2, "visibleAs": "UUID"},
    "shared": {"count": 1, "exclusivity": "Shared"},
    "shared-part": {"count": 2, "exclusivity": "Shared", "memoryMiB": 4_000, "cores": 10},
}
"""`spec.devices` of each GpuClaim. A claim is a template: each pod that names it gets cards of its own."""


class Load:
    """The pods of one run.

    Attributes:
        rate: pods to create per second; it may change at any time.
        claims: share of the pods with a GpuClaim.
        gangs: share of the creations that are those of a gang.
        created: number of pods that the API server accepted.
        deleted: number of pods that were deleted again.
        refused: number of creations that were retried because admission or the API server was unavailable.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        books: Books,
        draw: Random,
        rate: float,
        claims: float,
        gangs: float,
        population: int,
    ) -> None:
        """Create `rate` pods per second while fewer than `population` exist; `books` names the pods that are bound."""
        self._api = api
        self._namespace = namespace
        self._books = books
        self._draw = draw
        self.rate = rate
        self.claims = claims
        self.gangs = gangs
        self._population = population
        self._living: dict[str, None] = {}
        self._creating = 0
        self._task: asyncio.Task[None]
        self.created = 0
        self.deleted = 0
        self.refused = 0

    async def create_claims(self) -> None:
        """Create the GpuClaims, before the books are opened: a pod's claim must be known when the pod is observed."""
        for name, devices in _CLAIMS.items() if self.claims else ():
            claim = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind, "metadata": {"name": name}}
            await self._api.create(GPU_CLAIMS, {**claim, "spec": {"devices": devices}}, namespace=self._namespace)

    @asynccontextmanager
    async def coming_and_going(self) -> AsyncIterator[None]:
        """Create and delete pods while the block runs; the pods that exist at its end remain."""
        async with asyncio.TaskGroup() as group:
            self._task = group.create_task(self._run())
            try:
                yield
            finally:
                self._task.cancel()

    def stop(self) -> None:
        """Stop creating and deleting; the pods that exist now remain."""
        self._task.cancel()

    async def _run(self) -> None:
        names = _names()
        async with asyncio.TaskGroup() as group:
            while True:
                if len(self._living) + self._creating < self._population:
                    for pod in self._next(next(names)):
                        group.create_task(self._create(pod))
                if len(self._living) > self._population * 3 // 4:
                    for name in self._choose():
                        group.create_task(self._delete(name))
                await asyncio.sleep(self._draw.uniform(0.5, 1.5) / self.rate)

    def _next(self, name: str) -> list[dict[str, Any]]:
        """Return the next pod to create, or those of a gang."""
        if self._draw.random() < self.gangs:
            return members(name)
        return [manifest(name, self._draw, claims=self.claims)]

    def _choose(self) -> list[str]:
        """Choose the next pod to delete, usually a bound one, with its gang, and no longer count it."""
        bound = [name for each in self._books.bound() if (name := each.partition("/")[2]) in self._living]
        name = self._draw.choice(bound if bound and self._draw.random() > 0.1 else list(self._living))
        gang = name.partition("-")[0]
        chosen = [each for each in self._living if each.partition("-")[0] == gang]
        for each in chosen:
            del self._living[each]
        return chosen

    async def _create(self, pod: dict[str, Any]) -> None:
        """Create a pod, and retry until it succeeds, as a controller does."""
        self._creating += 1
        name = pod["metadata"]["name"]
        while True:
            try:
                await self._api.create(PODS, pod, namespace=self._namespace)
            except ConflictError:
                break  # an earlier attempt succeeded
            except ClusterError:
                self.refused += 1
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                break
        self._creating -= 1
        self._living[name] = None
        self.created += 1

    async def _delete(self, name: str) -> None:
        while True:
            try:
                await self._api.request("DELETE", PODS.path(namespace=self._namespace, name=name))
            except NotFoundError:
                return  # an earlier attempt succeeded, or the pod was deleted with its node
            except ClusterError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self.deleted += 1
                return


def members(gang: str) -> list[dict[str, Any]]:
    """Return the pods of a gang, which ask for a small share of a card each."""
    keys = {"gpu.scheduling/gang": gang, "gpu.scheduling/gang-min-members": str(SIZE)}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "1"}
    pods = [_pod(f"{gang}-{number}", [limits]) for number in range(SIZE)]
    return [{**pod, "metadata": {**pod["metadata"], "annotations": keys}} for pod in pods]


def manifest(name: str, draw: Random, *, claims: float) -> dict[str, Any]:
    """Return a pod of a random shape; `claims` is the share of pods that name a GpuClaim instead of amounts."""
    if draw.random() < _URGENT_SHARE:
        pod = _pod(name, [{"nvidia.com/gpu": "4", "nvidia.com/gpumem": "70000"}])
        return {**pod, "spec": {**pod["spec"], "priorityClassName": URGENT}}
    if draw.random() < claims:
        claim = draw.choice(tuple(_CLAIMS))
        count = {"nvidia.com/gpu": str(_CLAIMS[claim]["count"])}
        pod = _pod(name, draw.choice(([{}], [count], [count, count])))
        return {**pod, "metadata": {"name": name, "annotations": {"gpu.scheduling/claim": claim}}}
    return _pod(name, _amounts(draw))


def _amounts(draw: Random) -> list[dict[str, str]]:
    """Return the limits of each container: a share of a card, of several cards, a whole card, or two containers."""
    shape = draw.random()
    share = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(draw.choice(_SIZES)), "nvidia.com/gpucores": "10"}
    if shape < 0.75:
        return [share]
    if shape < 0.85:
        return [{**share, "nvidia.com/gpu": "2"}]
    if shape < 0.93:
        return [share, {**share, "nvidia.com/gpumem": "1000"}]
    if shape < 0.98:
        return [{"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25", "nvidia.com/gpucores": "20"}]
    return [{"nvidia.com/gpu": "1"}]


def _pod(name: str, limits: Sequence[Mapping[str, str]]) -> dict[str, Any]:
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
