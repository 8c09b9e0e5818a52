"""What a tenant's pods wait beside a hostile neighbour, who creates the worst valid objects of each kind.

The API server and the scheduler are real. The neighbour has the rights of the role `edit` in a namespace of its own,
and each attack is added to those before, so that the last figure is under all of them.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
import uvloop

from allocation import names
from benchmarks import cluster, hostile_objects, schedulers, watching
from benchmarks.pace import within
from benchmarks.results import Row, Sample
from cluster.api import Api
from cluster.resource import (
    GPU_CLAIMS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    Resource,
)
from lab.layout import Layout, Port

_NEIGHBOUR: Final = "neighbour"
_AT_ONCE: Final = 8
"""Requests of the neighbour, of which some have a megabyte."""
_DELETED_AT_ONCE: Final = 200
_BETWEEN_S: Final = 0.1
_MOST_WAIT_S: Final = 2.0
_PAUSE: Final = re.compile(rb"^tranche_event_loop_longest_pause_seconds ([0-9.e+-]+)$", re.MULTILINE)

_Objects = Iterable[tuple[Resource, dict[str, Any]]]


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run: nodes, the tenant's pods after each attack, and what the neighbour creates of each kind."""

    nodes: int
    arrivals: int
    pods: int
    budgets: int
    giants: int
    volumes: int
    claims: int


class _Deleted(msgspec.Struct):
    """The response to a request that deletes objects: those that are being deleted."""

    items: list[msgspec.Raw] = []


_FULL: Final = Sizes(nodes=500, arrivals=50, pods=3_000, budgets=500, giants=60, volumes=500, claims=2_000)
_SMOKE: Final = Sizes(nodes=6, arrivals=3, pods=5, budgets=3, giants=1, volumes=3, claims=3)


def run(name: str, *, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a few seconds and its figures mean nothing."""
    yield from uvloop.run(_measure(name, _SMOKE if smoke else _FULL))


async def _measure(name: str, sizes: Sizes) -> list[tuple[Row, Sample]]:
    rows = []
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api, _scheduled(api, layout, sizes):
            reference = ""
            for number, (what, attack) in enumerate(_ATTACKS.items()):
                await cluster.at_once((_create(api, kind, each) for kind, each in attack(sizes)), limit=_AT_ONCE)
                waits = await _arrive(api, f"tenant-{number}-", sizes.arrivals)
                subject = f"a tenant's pod waits beside a neighbour with {what}, {sizes.nodes:,} nodes"
                pause = await _longest_pause(layout)
                figure = f"at most {max(waits) * 1e3:.0f} ms, longest pause of the event loop {pause * 1e3:.0f} ms"
                limit, passed = f"≤ {_MOST_WAIT_S:g} s", within(max(waits), _MOST_WAIT_S)
                rows.append((Row(name, subject, figure, reference, limit, passed), Sample(name, subject, waits)))
                reference = reference or f"{max(waits) * 1e3:.0f} ms"
    return rows


@asynccontextmanager
async def _scheduled(api: Api, layout: Layout, sizes: Sizes) -> AsyncIterator[None]:
    """Run a scheduler on a half full fleet, with a namespace and a priority for the neighbour."""
    await cluster.settle(api, layout, nodes=sizes.nodes)
    await cluster.namespace(api, _NEIGHBOUR)
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "important"}, "value": 1000})
    with schedulers.loop(layout, schedulers.identity(layout)):
        await _arrive(api, "first-", 1)  # it has begun to lead
        yield
    # Others of a smoke run have the same cluster: what still waits would preempt their pods.
    waiting = {"fieldSelector": "spec.nodeName=", "limit": str(_DELETED_AT_ONCE)}
    pods = PODS.path(namespace=_NEIGHBOUR)
    while msgspec.json.decode(await api.request("DELETE", pods, params=waiting), type=_Deleted).items:
        pass


async def _create(api: Api, kind: Resource, body: dict[str, Any]) -> None:
    namespace = {} if kind is PERSISTENT_VOLUMES else {"namespace": _NEIGHBOUR}
    body["metadata"] |= namespace
    await api.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body}, **namespace)


async def _arrive(api: Api, prefix: str, pods: int) -> list[float]:
    """Create the tenant's pods one by one; return the seconds from each creation until the pod has its node."""
    requested: dict[str, float] = {}
    async with watching.bound(api, prefix, pods) as seen:
        for number in range(pods):
            await asyncio.sleep(_BETWEEN_S)
            requested[name := f"{prefix}{number}"] = time.perf_counter()
            await cluster.create(api, [cluster.fractional(name, memory_mib=100)])
        return [at - requested[name] for name, at in (await seen).at.items()]


async def _longest_pause(layout: Layout) -> float:
    """Return the longest pause of the scheduler's event loop in the last one to two minutes, in seconds."""
    url = f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        answer = await response.read()
    found = _PAUSE.search(answer)
    if found is None:
        raise SystemExit(f"the scheduler's metrics have no longest pause: {answer[:200]!r}")
    return float(found[1])


# ---- attacks ---------------------------------------------------------------------------------------------------------


def _nothing(_: Sizes) -> _Objects:
    return ()


def _pods(sizes: Sizes) -> _Objects:
    """Yield pods at every limit, each different from all others, that fit nowhere."""
    for number in range(sizes.pods):
        yield PODS, cluster.prepared(hostile_objects.pod(f"expensive-{number}", number, hostile=True))


def _budgets(sizes: Sizes) -> _Objects:
    """Yield budgets and the pods that they protect, and important pods that want nodes of their own by preemption.

    No kubelet ends a victim, so each nomination lasts until its deadline.
    """
    for number in range(sizes.budgets + sizes.giants):
        giant = number >= sizes.budgets
        yield POD_DISRUPTION_BUDGETS, hostile_objects.budget(f"budget-{number}", number, giant=giant)
    for number in range(sizes.giants + 20):
        yield PODS, cluster.fractional(f"protected-{number}", memory_mib=100)
    for number in range(sizes.giants + 40):
        pod = cluster.admitted(f"important-{number}", {"nvidia.com/gpu": "8"})
        pod["spec"]["priorityClassName"] = "important"
        yield PODS, pod


def _volumes(sizes: Sizes) -> _Objects:
    """Yield volumes, claims that are compared with each of them, and pods that wait for these."""
    for number in range(sizes.volumes):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": f"/volumes/{number}"},
        }
        yield PERSISTENT_VOLUMES, {"metadata": {"name": f"volume-{number}"}, "spec": spec}
    for number in range(sizes.volumes + sizes.giants // 3):
        name = f"volume-claim-{number}"
        giant = number >= sizes.volumes
        yield PERSISTENT_VOLUME_CLAIMS, hostile_objects.volume_claim(name, number, giant=giant)
        pod = cluster.fractional(f"stores-{number}", memory_mib=100)
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        yield PODS, pod


def _claims(sizes: Sizes) -> _Objects:
    """Yield GpuClaims and pods that name them."""
    for number in range(sizes.claims):
        name = f"claim-{number}"
        yield GPU_CLAIMS, hostile_objects.claim(name, number)
        pod = cluster.admitted(f"claims-{number}", {"nvidia.com/gpu": str(1 + number % 8)})
        pod["metadata"].setdefault("annotations", {})[names.CLAIM] = name
        yield PODS, pod


def _resource_claims(sizes: Sizes) -> _Objects:
    """Yield ResourceClaims with as many requests and selectors as the API server accepts."""
    for number in range(sizes.volumes):
        yield RESOURCE_CLAIMS, hostile_objects.resource_claim(f"resource-claim-{number}", number)


_ATTACKS: Final[dict[str, Callable[[Sizes], _Objects]]] = {
    "no objects": _nothing,
    "expensive pods that wait": _pods,
    "budgets and preemptors as well": _budgets,
    "volume claims as well": _volumes,
    "GpuClaims as well": _claims,
    "ResourceClaims as well": _resource_claims,
}
