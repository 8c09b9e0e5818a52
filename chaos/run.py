"""One run: the cluster, the load, the checker, fault after fault, and at the end everything healed and counted."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from chaos import catalogue, settings, world
from chaos.checker import Checker
from chaos.hunt import PODS_A_SECOND, hunt
from chaos.load import Load
from chaos.settings import Settings
from chaos.settling import settle
from chaos.summary import Summary
from chaos.world import NAMESPACE, World
from cluster.api import Api
from cluster.connection import connect
from lab import cluster
from lab.layout import Layout

_POPULATION_OF_SLOTS = 0.45


async def chaos(told: Settings, *, report: Callable[[str], None]) -> Summary:
    """Do faults as told, and answer what came of it."""
    draw = Random(told.seed)  # noqa: S311 -- which fault when, no secret
    faults: Counter[str] = Counter()
    async with under_load(told, draw, report=report) as (place, checker, load):
        begin = time.monotonic()
        await _one_after_the_other(told, place, load, draw=draw, faults=faults, report=report)
        if told.kills:
            load.rate = PODS_A_SECOND
        await hunt(place, draw, kills=told.kills, lost_bindings=told.lost_bindings, faults=faults, report=report)
        seconds = time.monotonic() - begin
        place.heal()
        load.stop()
        report("everything is healed")
        broken = await settle(place, checker.books)
    traffic = sum((each.proxy.interference.counts for each in place.replicas), Counter[str]())
    return Summary(
        seed=told.seed,
        seconds=seconds,
        faults=faults,
        traffic=traffic,
        created=load.created,
        deleted=load.deleted,
        placed=checker.books.placed,
        asked_again=load.refused,
        gaps=checker.gaps,
        slowest_seconds=checker.books.slowest,
        violations=[*checker.books.violations, *broken],
    )


@asynccontextmanager
async def under_load(
    told: Settings, draw: Random, *, report: Callable[[str], None]
) -> AsyncIterator[tuple[World, Checker, Load]]:
    """Answer a cluster on which pods come and go, and who watches it; all of it is gone afterwards."""
    with TemporaryDirectory(prefix="tranche-chaos-") as folder:
        layout = Layout(root=Path(folder), base_port=told.base_port)
        try:
            async with (
                world.running(layout, told) as place,
                connect(kubeconfig=str(layout.kubeconfig)) as way,
            ):
                report("the cluster is up")
                checker = Checker(
                    Api(way), patience_seconds=told.patience_seconds, report=lambda each: report(f"VIOLATION {each}")
                )
                cards = len(settings.NODES) * settings.CARDS
                load = Load(
                    Api(way, timeout=5.0),
                    namespace=NAMESPACE,
                    books=checker.books,
                    draw=Random(draw.random()),  # noqa: S311
                    rate=told.rate,
                    population=round(cards * settings.SLOTS * _POPULATION_OF_SLOTS),
                )
                async with checker.watching(), load.coming_and_going():
                    yield place, checker, load
        finally:
            await asyncio.to_thread(_take_down, layout, told.results)


async def _one_after_the_other(
    told: Settings, place: World, load: Load, *, draw: Random, faults: Counter[str], report: Callable[[str], None]
) -> None:
    """Do one fault after the other until the time is over and enough pods have come."""
    until = time.monotonic() + 60 * told.minutes
    for turn in catalogue.turns(draw):
        if time.monotonic() >= until and load.created >= told.pods:
            return
        fault = turn.fault()
        report(f"{fault.name}, {turn.hold_seconds:.0f} s")
        faults[fault.name] += 1
        try:
            await fault.apply(place, draw)
            await asyncio.sleep(turn.hold_seconds)
        finally:
            await fault.heal(place)
        await asyncio.sleep(turn.pause_seconds)


def _take_down(layout: Layout, results: Path) -> None:
    """Stop everything; the logs of our processes stay with the results."""
    cluster.down(layout)
    for log in layout.logs.glob("*.log"):
        if log.name.startswith(("scheduler", "webhook", "agent")):
            results.mkdir(parents=True, exist_ok=True)
            (results / log.name).write_bytes(log.read_bytes())
