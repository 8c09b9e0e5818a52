"""End to end on a real API server: the time until all of the pods that were created beforehand have a node.

The scheduling loop is compared with two peers in the same run, on the same control plane with the same policies: a
client that watches all pods, as every scheduler must, and posts the same annotated Bindings as fast as it can; and a
stock kube-scheduler with plain pods. They take turns, and the medians count.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from benchmarks import ceiling, cluster, profile, schedulers, waiting, watching, writes
from benchmarks.results import Row, Sample
from benchmarks.watching import Bound
from cluster.api import Api
from lab.layout import Layout

NAME = "placement"
_OF_CEILING = 0.9
_PATIENCE_S = 120.0
_TERM = frozenset(("leases", "leaderships"))
"""What a leader writes whatever the number of pods."""


class _Turn(msgspec.Struct, frozen=True):
    """One turn of each scheduler.

    Attributes:
        ours: Bindings by the scheduling loop.
        with_events: pods per second until each of them also had an event.
        written: writes that the API server counted meanwhile, by resource.
        client: Bindings by the unlimited client, which watches pods, too.
        stock: Bindings by kube-scheduler.
    """

    ours: Bound
    with_events: float
    written: Counter[str]
    client: Bound
    stock: Bound


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    for nodes in (10,) if smoke else (1_000, 5_000):
        pods, plain, turns = (40, 20, 1) if smoke else (2_000, 1_000, 3)
        yield from _rows(nodes, pods, uvloop.run(_measure(nodes=nodes, pods=pods, plain=plain, turns=turns)))


def flame(path: Path) -> None:
    """Write a flame graph of the scheduler while it places pods that were created beforehand."""
    uvloop.run(_flame(path, nodes=1_000, pods=4_000))


async def _flame(path: Path, *, nodes: int, pods: int) -> None:
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            await cluster.create(api, (cluster.fractional(f"flame-{number}") for number in range(pods)))
            async with watching.bound(api, "flame-", pods // 10) as begun, watching.bound(api, "flame-", pods) as ended:
                with schedulers.loop(layout, schedulers.identity(layout)) as scheduler:
                    await begun
                    with profile.recorded(scheduler, path):
                        await ended


async def _measure(*, nodes: int, pods: int, plain: int, turns: int) -> list[_Turn]:
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            account = schedulers.identity(layout)
            return [
                await _turn(api, layout, account, turn, nodes=nodes, pods=pods, plain=plain) for turn in range(turns)
            ]


async def _turn(api: Api, layout: Layout, account: Path, turn: int, *, nodes: int, pods: int, plain: int) -> _Turn:
    prefix = f"ours-{turn}-"
    await cluster.create(api, (cluster.fractional(f"{prefix}{number}") for number in range(pods)))
    before, events = await writes.count(api), await writes.events(api)
    async with watching.bound(api, prefix, pods) as seen:
        with schedulers.loop(layout, account):
            ours = await seen

            async def have_events() -> bool:
                return await writes.events(api) >= events + pods

            await waiting.until(have_events, what=f"an event about each of {pods} pods", seconds=_PATIENCE_S)
            rate = pods / (time.perf_counter() - next(iter(ours.at.values())))
            written = await writes.count(api) - before
    prefix = f"client-{turn}-"
    await cluster.create(api, (cluster.fractional(f"{prefix}{number}") for number in range(pods)))
    async with (
        watching.bound(api, prefix, pods) as seen,
        cluster.client(account) as scheduler,
        watching.bound(scheduler, prefix, pods),
    ):
        await ceiling.bind(scheduler, prefix, nodes=nodes, pods=pods)
        client = await seen
    prefix = f"stock-{turn}-"
    await cluster.create(
        api, (cluster.plain(f"{prefix}{number}", scheduler="default-scheduler") for number in range(plain))
    )
    async with watching.bound(api, prefix, plain) as seen:
        with schedulers.stock(layout):
            stock = await seen
    return _Turn(ours, rate, written, client, stock)


def _rows(nodes: int, pods: int, turns: Sequence[_Turn]) -> Iterator[tuple[Row, Sample]]:
    ours = median(turn.ours.rate for turn in turns)
    with_events = median(turn.with_events for turn in turns)
    client = median(turn.client.rate for turn in turns)
    stock = median(turn.stock.rate for turn in turns)
    fleet = f"{nodes:,} nodes, half full"
    what = f"end to end, loop mode, {pods:,} fractional pods created beforehand, {fleet}"
    yield (
        Row(
            NAME,
            what,
            f"{ours:.0f} pods/s, {ours / client:.2f} × the client, {ours / stock:.2f} × kube-scheduler",
            f"unlimited client {client:.0f}/s, kube-scheduler {stock:.0f}/s",
            f"! ≥ {_OF_CEILING} × an unlimited client that watches pods",
            ours >= _OF_CEILING * client,
        ),
        _sample(what, [turn.ours for turn in turns]),
    )
    what = f"the same, one event per placed pod written before the clock stops, {fleet}"
    yield (
        Row(
            NAME,
            what,
            f"{with_events:.0f} pods/s, {with_events / stock:.2f} × kube-scheduler",
            f"kube-scheduler {stock:.0f}/s",
        ),
        Sample(NAME, what, [pods / turn.with_events for turn in turns]),
    )
    for peer, bounds in (
        ("unlimited client", [turn.client for turn in turns]),
        ("kube-scheduler", [turn.stock for turn in turns]),
    ):
        what = f"{peer}, {fleet}"
        rates = ", ".join(f"{each.rate:.0f}" for each in bounds)
        yield Row(NAME, what, f"{rates} pods/s"), _sample(what, bounds)
    yield _writes(fleet, pods, turns[0])


def _writes(fleet: str, pods: int, turn: _Turn) -> tuple[Row, Sample]:
    counted = {resource: number for resource, number in turn.written.items() if number}
    others = {resource: number for resource, number in counted.items() if resource not in {*_TERM, "events"}}
    listed = ", ".join(f"{number} {resource}" for resource, number in sorted(counted.items()))
    what = f"API writes for {pods:,} placed pods, {fleet}"
    row = Row(
        NAME, what, listed, "", "! 1 per placed pod, plus events (and the Lease)", others == {"pods/binding": pods}
    )
    return row, Sample(NAME, what, turn.ours.since_first)


def _sample(what: str, bounds: Sequence[Bound]) -> Sample:
    return Sample(NAME, what, [second for each in bounds for second in each.since_first])
