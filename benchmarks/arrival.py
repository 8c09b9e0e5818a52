"""End to end while pods arrive: created as fast as the API server accepts them, and at a steady 100 per second.

The API server handles creations and Bindings at the same time here. The scheduling loop is compared with a stock
kube-scheduler that places plain pods, with one that calls the extender, and with itself next to a kube-scheduler for
claims of other drivers, which has no pods.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from statistics import median
from typing import Any, NamedTuple, TypeVar

import uvloop

from benchmarks import cluster, machine, schedulers, watching
from benchmarks.results import Row, Sample, milliseconds, percentile
from benchmarks.watching import Bound
from cluster.api import Api
from cluster.resource import PODS

NAME = "arrival"
_OF_STOCK, _EXTENDER_A_SECOND, _WITH_COMPONENT = 1.1, 90, 0.97
_A_SECOND, _P99_OF_STOCK = 100, 0.3

_MakePod = Callable[[str], dict[str, Any]]
_T = TypeVar("_T")


class _Turn(NamedTuple):
    """When the pods had their nodes, and the seconds of CPU time of the loop for each of them."""

    bound: Bound
    busy: float


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    nodes, pods, steady, turns = (10, 20, 20, 1) if smoke else (1_000, 1_000, 1_000, 3)
    yield from uvloop.run(_measure(nodes=nodes, pods=pods, steady=steady, turns=turns))


async def _measure(*, nodes: int, pods: int, steady: int, turns: int) -> list[tuple[Row, Sample]]:
    ours, stock, extended, beside = [], [], [], []
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            account = schedulers.identity(layout)
            for turn in range(turns):
                ours.append(await _flood_loop(api, f"arriving-ours-{turn}-", pods, schedulers.loop(layout, account)))
                beside.append(
                    await _flood_loop(api, f"arriving-beside-{turn}-", pods, schedulers.handing_over(layout, account))
                )
                async with _deciding(api, f"arriving-plain-{turn}-", schedulers.stock(layout), _plain):
                    stock.append(await _flood(api, f"arriving-plain-{turn}-", pods, _plain))
                async with _deciding(
                    api, f"arriving-both-{turn}-", schedulers.extended(layout, account), cluster.fractional
                ):
                    extended.append(await _flood(api, f"arriving-both-{turn}-", pods, cluster.fractional))
            async with _deciding(api, "steady-", schedulers.loop(layout, account), cluster.fractional):
                waits = await _steady(api, "steady-", steady, cluster.fractional)
            async with _deciding(api, "steady-plain-", schedulers.stock(layout), _plain):
                stock_waits = await _steady(api, "steady-plain-", steady, _plain)
    return [
        *_rows(nodes, pods, [each.bound for each in ours], stock, extended),
        _component_row(nodes, pods, ours, beside),
        _steady_row(nodes, waits, stock_waits),
    ]


@asynccontextmanager
async def _deciding(api: Api, prefix: str, running: AbstractContextManager[_T], make: _MakePod) -> AsyncIterator[_T]:
    """Run a scheduler for the block, which begins when a first pod has its node."""
    async with watching.bound(api, f"first-{prefix}", 1) as seen:
        with running as found:
            await cluster.create(api, [make(f"first-{prefix}0")])
            await seen
            yield found


async def _flood_loop(api: Api, prefix: str, pods: int, running: AbstractContextManager[int]) -> _Turn:
    """Let a scheduling loop, whose process ID `running` yields, place pods that are created as fast as possible."""
    async with _deciding(api, prefix, running, cluster.fractional) as process:
        busy = machine.cpu_seconds(process)
        bound = await _flood(api, prefix, pods, cluster.fractional)
        return _Turn(bound, (machine.cpu_seconds(process) - busy) / pods)


async def _flood(api: Api, prefix: str, pods: int, make: _MakePod) -> Bound:
    """Create pods as fast as the API server accepts them."""
    async with watching.bound(api, prefix, pods) as seen:
        await cluster.create(api, (make(f"{prefix}{number}") for number in range(pods)))
        return await seen


async def _steady(api: Api, prefix: str, pods: int, make: _MakePod) -> list[float]:
    """Create pods at a fixed rate; return the seconds from each request until the pod has its node."""
    requested: dict[str, float] = {}

    async def one(name: str) -> None:
        requested[name] = time.perf_counter()
        await api.create(PODS, make(name), namespace=cluster.NAMESPACE)

    async with watching.bound(api, prefix, pods) as seen:
        await cluster.on_a_clock((one(f"{prefix}{number}") for number in range(pods)), a_second=_A_SECOND)
        return [at - requested[name] for name, at in (await seen).at.items()]


def _plain(name: str) -> dict[str, Any]:
    return cluster.plain(name, scheduler="default-scheduler")


def _rows(
    nodes: int, pods: int, ours: list[Bound], stock: list[Bound], extended: list[Bound]
) -> Iterator[tuple[Row, Sample]]:
    floor = median(each.rate for each in stock)
    fleet = f"{pods:,} pods on {nodes:,} nodes, half full"
    for what, bounds, least, target in (
        (f"end to end, created while scheduling, loop mode, {fleet}", ours, _OF_STOCK * floor,
         f"≥ {_OF_STOCK:g} × kube-scheduler"),
        (f"end to end, created while scheduling, extender mode, {fleet}", extended, _EXTENDER_A_SECOND,
         f"≥ {_EXTENDER_A_SECOND} pods/s"),
    ):  # fmt: skip
        rate = median(each.rate for each in bounds)
        yield (
            Row(
                NAME,
                what,
                f"{rate:.0f} pods/s, {rate / floor:.2f} × kube-scheduler",
                f"kube-scheduler {floor:.0f}/s",
                target,
                rate >= least,
            ),
            _sample(what, bounds),
        )
    what = f"kube-scheduler, created while scheduling, {fleet}"
    yield Row(NAME, what, ", ".join(f"{each.rate:.0f}" for each in stock) + " pods/s"), _sample(what, stock)


def _component_row(nodes: int, pods: int, ours: list[_Turn], beside: list[_Turn]) -> tuple[Row, Sample]:
    """Compare turn by turn, because the turns of one machine differ more than the two.

    The loop's own CPU time says how much of a lower rate is its own: on a busy machine kube-scheduler, which
    watches the pods as well, and the API server, which shows them to it, take the rest from the others.
    """
    what = f"loop mode with manifests/resource-claims, {pods:,} pods without claims on {nodes:,} nodes, half full"
    ratio = median(other.bound.rate / own.bound.rate for own, other in zip(ours, beside, strict=True))
    rates = ", ".join(f"{each.bound.rate:.0f}" for each in beside)
    target = f"≥ {_WITH_COMPONENT:g} × without"
    without, busy = (median(each.busy for each in turns) * 1e3 for turns in (ours, beside))
    figure = f"{ratio:.2f} × without the component; {busy:.2f} ms of the loop's CPU time a pod, {without:.2f} without"
    return (
        Row(NAME, what, figure, f"{rates} pods/s", target, ratio >= _WITH_COMPONENT),
        _sample(what, [each.bound for each in beside]),
    )


def _steady_row(nodes: int, waits: list[float], stock: list[float]) -> tuple[Row, Sample]:
    what = f"create-to-bound at {_A_SECOND} pods/s, {len(waits):,} pods on {nodes:,} nodes, half full"
    ratio = percentile(waits, 99) / percentile(stock, 99)
    figure = f"{milliseconds(waits)}, p99 {ratio:.2f} × kube-scheduler's"
    target = f"p99 ≤ {_P99_OF_STOCK:g} × kube-scheduler's"
    row = Row(NAME, what, figure, f"kube-scheduler {milliseconds(stock)}", target, ratio <= _P99_OF_STOCK)
    return row, Sample(NAME, what, waits)


def _sample(what: str, bounds: list[Bound]) -> Sample:
    return Sample(NAME, what, [second for each in bounds for second in each.since_first])
