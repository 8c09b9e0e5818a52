"""Gangs: one decision about hundreds of pods, and how soon all of a job is bound on a real API server.

The peers are the same pods without a gang, decided or bound one by one, in the same run.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from allocation import names
from allocation.settings import AllocationSettings
from benchmarks import cluster, fleets, schedulers, watching
from benchmarks.extender import fill
from benchmarks.pace import within
from benchmarks.results import Row, Sample
from benchmarks.timing import Timed, timed
from cluster import process
from cluster.api import Api
from lab.layout import Layout
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.gang_scheduling.gang_cycle import GangCycle, ScheduledGang
from scheduler.objects import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState

NAME = "gangs"
_LONGEST_STEP_MS: Final = 10
_SECONDS: Final = 5.0
"""Until all pods of a gang have nodes; docs/performance.md has what another scheduler needs."""


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for nodes, members in ((40, 8),) if smoke else ((5_000, 64), (5_000, 512), (5_000, 2_048)):
        yield from _decisions(nodes, members, times=2 if smoke else 5)
    for members, cards in ((4, 8),) if smoke else ((64, 8), (512, 1)):
        yield from _rows(members, cards, uvloop.run(_measure(members, cards, turns=1 if smoke else 3)))


# ---- one decision ----------------------------------------------------------------------------------------------------


def _decisions(nodes: int, members: int, *, times: int) -> Iterator[tuple[Row, Sample]]:
    make_queue = partial(SchedulingQueue, clock=lambda: 0.0, first_backoff=1.0, longest_backoff=1.0)
    state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=lambda: 0.0)
    fill(state, nodes)
    for each in tuple(state.ledger.reservations()):
        state.ledger.release(each.uid)
    cycle, gang_cycle = SchedulingCycle(state), GangCycle(SchedulingCycle(state))
    together: list[Timed] = []
    alone: list[float] = []
    for turn in range(times):
        pods = [_pod(f"gang-{turn}-{number}", gang=f"g{turn}", size=members) for number in range(members)]
        for pod in pods:
            state.set_pod(pod)
        process.settle()
        gang = state.gangs.of(pods[0].uid)
        if gang is None:
            raise SystemExit("the pods of the benchmark have no gang")
        entries = state.queue.take(list(gang.waiting))
        measured, found = timed(gang_cycle.schedule(gang, entries))
        if not isinstance(found, ScheduledGang):
            raise SystemExit(f"the gang of the benchmark is rejected: {found}")
        together.append(measured)
        for pod in pods:
            state.drop_pod(pod)
        singles = [_pod(f"single-{turn}-{number}") for number in range(members)]
        for pod in singles:
            state.set_pod(pod)
        alone.append(sum(timed(cycle.schedule(pod))[0].total for pod in singles))
        for pod in singles:
            state.drop_pod(pod)
    decision, single = median(each.total for each in together), median(alone)
    what = f"one decision about {members:,} pods with 8 cards each, {nodes:,} idle nodes"
    yield (
        Row(NAME, what, f"{decision * 1e3:.1f} ms, {decision / single:.2f} × single pods", f"{single * 1e3:.1f} ms"),
        Sample(NAME, what, [each.total for each in together]),
    )
    longest = max(each.longest_step for each in together) * 1e3
    what = f"longest step (processor time) of that decision, {members:,} pods, {nodes:,} nodes"
    yield (
        Row(NAME, what, f"{longest:.2f} ms", "", f"! ≤ {_LONGEST_STEP_MS} ms", within(longest, _LONGEST_STEP_MS)),
        Sample(NAME, what, [each.longest_step for each in together]),
    )


def _pod(name: str, *, gang: str = "", size: int = 0) -> Pod:
    limits = {"nvidia.com/gpu": str(fleets.CARDS)}
    annotations = {names.GANG: gang, names.GANG_MIN_MEMBERS: str(size)} if gang else {}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
    }
    return msgspec.convert(body, Pod)


# ---- end to end ------------------------------------------------------------------------------------------------------


class _Turn(msgspec.Struct, frozen=True):
    """Seconds from the creation of the first pod until all have nodes: of a gang, and of pods by themselves."""

    gang: float
    singles: float


async def _measure(members: int, cards: int, *, turns: int) -> list[_Turn]:
    needed = -(-members * cards // fleets.CARDS)
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=2 * turns * needed + turns, pods=0)
            account = schedulers.identity(layout)
            return [await _turn(api, layout, account, turn, members=members, cards=cards) for turn in range(turns)]


async def _turn(api: Api, layout: Layout, account: Path, turn: int, *, members: int, cards: int) -> _Turn:
    with schedulers.loop(layout, account):
        prefix = f"warms-{members}-{turn}-"
        async with watching.bound(api, prefix, 1) as seen:
            await cluster.create(api, [cluster.fractional(f"{prefix}up", memory_mib=1)])
            await seen
        gang = await _seconds(api, f"gang-{members}-{turn}-", members=members, cards=cards, is_gang=True)
        singles = await _seconds(api, f"single-{members}-{turn}-", members=members, cards=cards, is_gang=False)
    return _Turn(gang, singles)


async def _seconds(api: Api, prefix: str, *, members: int, cards: int, is_gang: bool) -> float:
    pods = [
        _manifest(f"{prefix}{number}", cards, gang=prefix if is_gang else "", size=members) for number in range(members)
    ]
    async with watching.bound(api, prefix, members) as seen:
        begin = time.perf_counter()
        await cluster.create(api, pods)
        bound = await seen
    return max(bound.at.values()) - begin


def _manifest(name: str, cards: int, *, gang: str, size: int) -> dict[str, Any]:
    pod = cluster.admitted(name, {"nvidia.com/gpu": str(cards)})
    if gang:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations |= {names.GANG: gang, names.GANG_MIN_MEMBERS: str(size)}
    return pod


def _rows(members: int, cards: int, turns: list[_Turn]) -> Iterator[tuple[Row, Sample]]:
    gang, singles = median(turn.gang for turn in turns), median(turn.singles for turn in turns)
    what = f"end to end, a gang of {members} pods with {cards} cards each, from the first creation to the last Binding"
    yield (
        Row(
            NAME,
            what,
            f"{gang:.2f} s, {gang / singles:.2f} × single pods",
            f"single pods {singles:.2f} s",
            f"≤ {_SECONDS:g} s",
            within(gang, _SECONDS),
        ),
        Sample(NAME, what, [turn.gang for turn in turns]),
    )
