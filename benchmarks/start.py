"""A scheduler with 5,000 nodes and 50,000 running pods: its start, its idle cost, and its first condition on a pod.

The control plane and `python -m scheduler` are real. A pod that fits nowhere gets its condition while 5,000 others are
pending.
"""

import asyncio
import time
from collections.abc import Iterator

import msgspec
import uvloop

from benchmarks import cluster, fleets, machine, schedulers
from benchmarks.pace import within
from benchmarks.results import Row, Sample, percentile
from cluster.api import Api
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import PODS
from lab import health, wait
from lab.layout import Port

NAME = "start"
_READY_S, _RSS_MB, _IDLE_PERCENT, _CONDITION_S = 8.0, 400, 3.0, 1.0
_PATIENCE_S = 300.0
_PODS = 10


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_unschedulable(self) -> bool:
        """Whether the scheduler has written that no node fits."""
        return any(each.type == "PodScheduled" and each.status == "False" for each in self.status.conditions)


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    yield from uvloop.run(_run(nodes=10, waiting=20, idle_seconds=1) if smoke else _run())


async def _run(*, nodes: int = 5_000, waiting: int = 5_000, idle_seconds: float = 150) -> list[tuple[Row, Sample]]:
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes, pods=_PODS)
            account, begin = schedulers.identity(layout), time.perf_counter()
            with schedulers.loop(layout, account, *_periodic(idle_seconds)) as pid:
                wait.until(
                    lambda: health.is_alive(layout, Port.SCHEDULER, "/readyz"),
                    what="the scheduler to be ready",
                    timeout_s=_PATIENCE_S,
                )
                ready = time.perf_counter() - begin
                rss, idle = machine.rss_mb(pid), await _idle_percent(pid, idle_seconds)
                conditions = await _condition_seconds(api, waiting=waiting, count=3 if waiting < 100 else 20)
    fleet = f"{nodes:,} nodes"
    what = (
        f"scheduler start with {fleet} and {nodes * _PODS:,} running pods",
        f"a pod that fits nowhere gets its reasons, {fleet}",
    )
    target = f"ready ≤ {_READY_S:g} s, RSS ≤ {_RSS_MB} MB; CPU ≤ {_IDLE_PERCENT:g} % when nothing changes"
    figure = f"ready {ready:.1f} s, RSS {rss:.0f} MB; CPU {idle:.1f} %"
    passed = rss <= _RSS_MB and within(max(ready / _READY_S, idle / _IDLE_PERCENT), 1.0)
    others = f"with {waiting:,} others waiting: p50 {percentile(conditions, 50):.3f} s, at most {max(conditions):.3f} s"
    return [
        (Row(NAME, what[0], figure, "", target, passed), Sample(NAME, what[0], [ready])),
        (
            Row(NAME, what[1], others, "", f"! ≤ {_CONDITION_S:g} s", within(max(conditions), _CONDITION_S)),
            Sample(NAME, what[1], conditions),
        ),
    ]


async def _condition_seconds(api: Api, *, waiting: int, count: int) -> list[float]:
    """Return how long each of `count` unschedulable pods waits for its condition, with `waiting` others pending."""
    seen: dict[str, asyncio.Event] = {}

    def note(pod: _Pod, _old: _Pod | None) -> None:
        event = seen.setdefault(pod.metadata.name, asyncio.Event())
        if pod.is_unschedulable:
            event.set()

    watching = asyncio.create_task(Informer(api, PODS, _Pod, on_upsert=note, namespace=cluster.NAMESPACE).run())
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await cluster.create(api, (_unschedulable(f"waits-{number}", 1) for number in range(waiting)))
            for number in range(waiting):
                await seen.setdefault(f"waits-{number}", asyncio.Event()).wait()
            seconds = []
            for number in range(count):
                name = f"unschedulable-{number}"
                begin = time.perf_counter()
                await cluster.create(api, [_unschedulable(name, 2 + number)])
                await seen.setdefault(name, asyncio.Event()).wait()
                seconds.append(time.perf_counter() - begin)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return seconds


def _unschedulable(name: str, more_mib: int) -> dict[str, object]:
    """Return a pod that requests more memory than a card has; each `more_mib` is a different shape."""
    return cluster.fractional(name, memory_mib=fleets.MEMORY_MIB + more_mib)


def _periodic(seconds: float) -> tuple[str, ...]:
    """Return flags by which all periodic work runs once in `seconds`, because that work dominates the idle cost."""
    return "--relist-seconds", str(seconds), "--recount-seconds", str(seconds)


async def _idle_percent(pid: int, seconds: float) -> float:
    """Return the percentage of one processor that an idle process takes.

    In that time it lists and compares its state once, four times as often as by default.
    """
    before = machine.cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return (machine.cpu_seconds(pid) - before) / seconds * 100
