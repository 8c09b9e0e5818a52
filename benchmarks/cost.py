"""Processor time of a placed pod: of the scheduler, and of the API server and etcd, beside kube-scheduler.

Our pods are created as users write them, so the webhook and the policies take part; kube-scheduler places plain pods of
a namespace that has not opted in. Both write an event for each pod, which counts. They take turns on one control plane,
and the medians of the turns' ratios count. A scheduler's start is left out.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from allocation import names
from benchmarks import cluster, machine, schedulers, waiting, webhook, writes
from benchmarks.results import Row, Sample
from cluster.api import Api
from cluster.resource import PODS
from lab.layout import Layout
from lab.processes import Daemon

NAME: Final = "cost"
_OF_STOCK, _SERVERS_OF_STOCK, _RSS_MB = 0.3, 1.15, 250
_OPTED_IN: Final = "cost"
_PATIENCE_S, _POLL_S = 300.0, 0.2
_RESOLUTION_S: Final = 1e-6
_SERVERS: Final = ("kube-apiserver", "etcd")


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run.

    Attributes:
        nodes: with eight cards each.
        running: pods of each node before the first turn.
        arriving: pods that are created while a scheduler works, in each turn of it.
        waiting: pods that were created before. Until the first event is seen, a part of them is bound whose events
            follow; the more there are, the less that matters.
        turns: of which each has both schedulers.
    """

    nodes: int
    running: int
    arriving: int
    waiting: int
    turns: int


_FULL: Final = Sizes(nodes=1_000, running=40, arriving=1_000, waiting=4_000, turns=3)
_SMOKE: Final = Sizes(nodes=12, running=10, arriving=20, waiting=20, turns=1)


class Cost(msgspec.Struct, frozen=True):
    """CPU seconds for each placed pod.

    Attributes:
        scheduler: of the scheduler.
        servers: of the API server and etcd.
    """

    scheduler: float
    servers: float


class _Turn(msgspec.Struct, frozen=True):
    """What pods cost that were created while the scheduler worked, and those that were created before."""

    arriving: Cost
    waiting: Cost


class _Measured(msgspec.Struct, frozen=True):
    """The turns of both schedulers, and what else was seen of ours.

    Attributes:
        ours: turns of the loop.
        stock: turns of kube-scheduler.
        webhook: CPU seconds of the webhook for each pod.
        rss_mb: the memory of the loop after its first turn, in MB: each turn leaves more pods than the row says.
    """

    ours: list[_Turn]
    stock: list[_Turn]
    webhook: float
    rss_mb: float


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes as long as a control plane needs to start, and its figures mean nothing."""
    sizes = _SMOKE if smoke else _FULL
    yield from _rows(sizes, uvloop.run(_measure(sizes)))


async def _measure(sizes: Sizes) -> _Measured:
    ours, stock = list[_Turn](), list[_Turn]()
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=sizes.nodes, pods=sizes.running)
            await cluster.namespace(api, _OPTED_IN, labels={names.INJECTION_LABEL: "enabled"})
            account = schedulers.identity(layout)
            with_cards = _Meter(api, layout, _OPTED_IN, webhook.before_admission, sizes)
            plain = _Meter(api, layout, cluster.NAMESPACE, _plain, sizes)
            async with webhook.running(api, layout, _OPTED_IN) as pid:
                busy = machine.cpu_seconds(pid)
                for turn in range(sizes.turns):
                    ours.append(await with_cards.turn(f"cost-{turn}", lambda: schedulers.loop(layout, account)))
                    stock.append(await plain.turn(f"plain-cost-{turn}", lambda: schedulers.stock(layout)))
                busy = (machine.cpu_seconds(pid) - busy) / ((sizes.arriving + sizes.waiting) * sizes.turns)
    return _Measured(ours, stock, busy, with_cards.rss_mb)


class _Meter:
    """Measures what the pods of one kind, which `make` returns, cost in a namespace."""

    def __init__(
        self, api: Api, layout: Layout, namespace: str, make: Callable[[str], dict[str, Any]], sizes: Sizes
    ) -> None:
        self.rss_mb = 0.0
        self._api = api
        self._layout = layout
        self._namespace = namespace
        self._make = make
        self._sizes = sizes

    async def turn(self, prefix: str, running: Callable[[], AbstractContextManager[int]]) -> _Turn:
        """Measure a scheduler, which `running` starts, with pods that arrive, and a new one with pods that wait."""
        with running() as scheduler:
            await self._placed(await self._create(f"{prefix}-first", 1), 1)
            async with self._metered(scheduler, pods=self._sizes.arriving) as costs:
                before = await self._create(f"{prefix}-arriving", self._sizes.arriving)
                await self._placed(before, self._sizes.arriving)
            (arriving,) = costs
            self.rss_mb = self.rss_mb or machine.rss_mb(scheduler)
        pods = self._sizes.waiting
        before = await self._create(f"{prefix}-waiting", pods)
        with running() as scheduler:
            await self._placed(before, 1)
            async with self._metered(scheduler, pods=before + pods - await self._events()) as costs:
                await self._placed(before, pods)
            (waiting_,) = costs
        return _Turn(arriving, waiting_)

    async def _create(self, prefix: str, count: int) -> int:
        """Create pods as fast as the API server accepts them; return how many events there were before."""
        before = await self._events()
        pods = [self._make(f"{prefix}-{number}") for number in range(count)]
        for pod in pods:
            pod["metadata"]["namespace"] = self._namespace
        await cluster.at_once(self._api.create(PODS, pod, namespace=self._namespace) for pod in pods)
        return before

    async def _placed(self, before: int, pods: int) -> None:
        """Wait until `pods` have been placed, each with an event."""

        async def have_events() -> bool:
            return await self._events() >= before + pods

        what = f"an event about each of {pods} pods in {self._namespace}"
        await waiting.until(have_events, what=what, seconds=_PATIENCE_S, every=_POLL_S)

    async def _events(self) -> int:
        return await writes.events(self._api, namespace=self._namespace)

    @asynccontextmanager
    async def _metered(self, scheduler: int, *, pods: int) -> AsyncIterator[list[Cost]]:
        """Measure the block, in which `pods` are placed; its cost is in the list afterwards."""
        begin = self._busy(scheduler)
        costs = list[Cost]()
        yield costs
        end = self._busy(scheduler)
        # The pods of a smoke run may all have been placed before the block.
        pods, least = max(pods, 1), _RESOLUTION_S
        costs.append(
            Cost(
                max(end.scheduler - begin.scheduler, least) / pods,
                max(end.servers - begin.servers, least) / pods,
            )
        )

    def _busy(self, scheduler: int) -> Cost:
        servers = sum(machine.cpu_seconds(Daemon(self._layout, name).pid or 0) for name in _SERVERS)
        return Cost(machine.cpu_seconds(scheduler), servers)


def _plain(name: str) -> dict[str, Any]:
    return cluster.plain(name, scheduler="default-scheduler")


def _rows(sizes: Sizes, measured: _Measured) -> Iterator[tuple[Row, Sample]]:
    fleet = f"{sizes.nodes:,} nodes, {sizes.nodes * sizes.running:,} running pods"
    for when, of in (("while it works", _arriving), ("before", _waiting)):
        ours, stock = ([of(turn).scheduler for turn in turns] for turns in (measured.ours, measured.stock))
        what = f"processor time of the scheduler for 1,000 placed pods, created {when}, events included, {fleet}"
        yield _row(what, ours, stock, _OF_STOCK)
    for when, of in (("creation, webhook, policies, Binding, event", _arriving), ("Binding, event", _waiting)):
        ours, stock = ([of(turn).servers for turn in turns] for turns in (measured.ours, measured.stock))
        what = f"processor time of the API server and etcd for 1,000 pods: {when}, {fleet}"
        yield _row(what, ours, stock, _SERVERS_OF_STOCK if of is _arriving else None)
    what = f"processor time of the webhook for 1,000 pods, {fleet}"
    yield Row(NAME, what, f"{measured.webhook * 1e3:.2f} s"), Sample(NAME, what, [measured.webhook])
    what = f"memory of the scheduler, {fleet}"
    figure, passed = f"RSS {measured.rss_mb:.0f} MB", measured.rss_mb <= _RSS_MB
    yield Row(NAME, what, figure, "", f"≤ {_RSS_MB} MB", passed), Sample(NAME, what, [measured.rss_mb])


def _row(what: str, ours: Sequence[float], stock: Sequence[float], most: float | None) -> tuple[Row, Sample]:
    ratio = median(own / other for own, other in zip(ours, stock, strict=True))
    figure = f"{median(ours) * 1e3:.2f} s, {ratio:.2f} × kube-scheduler"
    floor = f"kube-scheduler with plain pods {median(stock) * 1e3:.2f} s"
    target, passed = (f"! ≤ {most:g} ×", ratio <= most) if most is not None else ("", None)
    return Row(NAME, what, figure, floor, target, passed), Sample(NAME, what, [*ours, *stock])


def _arriving(turn: _Turn) -> Cost:
    return turn.arriving


def _waiting(turn: _Turn) -> Cost:
    return turn.waiting
