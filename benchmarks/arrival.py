"""End to end while pods arrive: created as fast as the API server accepts them, and at a steady 200 per second.

The API server handles creations and Bindings at the same time here. The scheduling loop is compared with a stock
kube-scheduler that places plain pods, and with one that calls the extender.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from statistics import median
from typing import Any

import uvloop

from benchmarks import cluster, schedulers, watching
from benchmarks.results import Row, Sample, percentile
from benchmarks.watching import Bound
from cluster.api import Api
from cluster.resource import PODS

NAME = "arrival"
_OF_STOCK, _EXTENDER_OF_STOCK = 1.3, 0.7
_A_SECOND, _P99_MS = 200, 250.0

_MakePod = Callable[[str], dict[str, Any]]


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    nodes, pods, steady, turns = (10, 20, 20, 1) if smoke else (1_000, 1_000, 2_000, 3)
    yield from uvloop.run(_measure(nodes=nodes, pods=pods, steady=steady, turns=turns))


async def _measure(*, nodes: int, pods: int, steady: int, turns: int) -> list[tuple[Row, Sample]]:
    ours, stock, extended = [], [], []
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            account = schedulers.identity(layout)
            for turn in range(turns):
                async with _deciding(
                    api, f"arriving-ours-{turn}-", schedulers.loop(layout, account), cluster.fractional
                ):
                    ours.append(await _flood(api, f"arriving-ours-{turn}-", pods, cluster.fractional))
                async with _deciding(api, f"arriving-plain-{turn}-", schedulers.stock(layout), _plain):
                    stock.append(await _flood(api, f"arriving-plain-{turn}-", pods, _plain))
                async with _deciding(
                    api, f"arriving-both-{turn}-", schedulers.extended(layout, account), cluster.fractional
                ):
                    extended.append(await _flood(api, f"arriving-both-{turn}-", pods, cluster.fractional))
            async with _deciding(api, "steady-", schedulers.loop(layout, account), cluster.fractional):
                waits = await _steady(api, "steady-", steady)
    return [*_rows(nodes, pods, ours, stock, extended), _steady_row(nodes, waits)]


@asynccontextmanager
async def _deciding(
    api: Api, prefix: str, running: AbstractContextManager[object], make: _MakePod
) -> AsyncIterator[None]:
    """Run a scheduler for the block, which begins when a first pod has its node."""
    async with watching.bound(api, f"first-{prefix}", 1) as seen:
        with running:
            await cluster.create(api, [make(f"first-{prefix}0")])
            await seen
            yield


async def _flood(api: Api, prefix: str, pods: int, make: _MakePod) -> Bound:
    """Create pods as fast as the API server accepts them."""
    async with watching.bound(api, prefix, pods) as seen:
        await cluster.create(api, (make(f"{prefix}{number}") for number in range(pods)))
        return await seen


async def _steady(api: Api, prefix: str, pods: int) -> list[float]:
    """Create pods at a fixed rate; return the seconds from each request until the pod has its node."""
    requested: dict[str, float] = {}

    async def one(name: str) -> None:
        requested[name] = time.perf_counter()
        await api.create(PODS, cluster.fractional(name), namespace=cluster.NAMESPACE)

    async with watching.bound(api, prefix, pods) as seen:
        await _on_a_clock((one(f"{prefix}{number}") for number in range(pods)), a_second=_A_SECOND)
        return [at - requested[name] for name, at in (await seen).at.items()]


async def _on_a_clock(work: Iterator[Coroutine[Any, Any, None]], *, a_second: int) -> None:
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, each in enumerate(work):
            await asyncio.sleep(begin + number / a_second - time.perf_counter())
            group.create_task(each)


def _plain(name: str) -> dict[str, Any]:
    return cluster.plain(name, scheduler="default-scheduler")


def _rows(
    nodes: int, pods: int, ours: list[Bound], stock: list[Bound], extended: list[Bound]
) -> Iterator[tuple[Row, Sample]]:
    floor = median(each.rate for each in stock)
    fleet = f"{pods:,} pods on {nodes:,} nodes, half full"
    for what, bounds, least in (
        (f"end to end, created while scheduling, loop mode, {fleet}", ours, _OF_STOCK),
        (f"end to end, created while scheduling, extender mode, {fleet}", extended, _EXTENDER_OF_STOCK),
    ):
        rate = median(each.rate for each in bounds)
        yield (
            Row(
                NAME,
                what,
                f"{rate:.0f} pods/s, {rate / floor:.2f} × kube-scheduler",
                f"kube-scheduler {floor:.0f}/s",
                f"≥ {least:g} × kube-scheduler",
                rate >= least * floor,
            ),
            _sample(what, bounds),
        )
    what = f"kube-scheduler, created while scheduling, {fleet}"
    yield Row(NAME, what, ", ".join(f"{each.rate:.0f}" for each in stock) + " pods/s"), _sample(what, stock)


def _steady_row(nodes: int, waits: list[float]) -> tuple[Row, Sample]:
    what = f"create-to-bound at {_A_SECOND} pods/s, {len(waits):,} pods on {nodes:,} nodes, half full"
    worst = percentile(waits, 99) * 1e3
    figure = f"p50 {percentile(waits, 50) * 1e3:.0f} ms, p99 {worst:.0f} ms"
    return Row(NAME, what, figure, "", f"p99 ≤ {_P99_MS:g} ms", worst <= _P99_MS), Sample(NAME, what, waits)


def _sample(what: str, bounds: list[Bound]) -> Sample:
    return Sample(NAME, what, [second for each in bounds for second in each.since_first])
