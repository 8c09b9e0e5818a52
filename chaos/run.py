"""One run: start the cluster, the load and the checker, inject faults, heal them, and check the final state."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from chaos import catalogue, settings
from chaos.catalogue import Turn
from chaos.checker import Checker
from chaos.hunt import PODS_A_SECOND, hunt
from chaos.load import Load
from chaos.settings import Settings
from chaos.settling import settle
from chaos.summary import Summary
from chaos.world import NAMESPACE, World, running
from cluster.api import Api
from cluster.connect import connect
from lab import cluster
from lab.layout import Layout

_POPULATION_OF_SLOTS = 0.45
_ATTEMPTS = 3


async def chaos(config: Settings, *, report: Callable[[str], None]) -> Summary:
    """Inject faults as `config` says, and return the result."""
    draw = Random(config.seed)  # noqa: S311 -- the order of faults, not a secret
    faults: Counter[str] = Counter()
    async with under_load(config, draw, report=report) as (world, checker, load):
        begin = time.monotonic()
        await _inject(config, world, load, draw=draw, faults=faults, report=report)
        if config.kills:
            load.rate = PODS_A_SECOND
        await hunt(world, draw, kills=config.kills, lost_bindings=config.lost_bindings, faults=faults, report=report)
        seconds = time.monotonic() - begin
        world.heal()
        load.stop()
        report("all faults are healed")
        remaining = await settle(world, checker.books)
    traffic = sum((each.proxy.interference.counts for each in world.replicas), Counter[str]())
    return Summary(
        seed=config.seed,
        seconds=seconds,
        faults=faults,
        missing=missing(config, faults),
        traffic=traffic,
        created=load.created,
        deleted=load.deleted,
        placed=checker.books.placed,
        asked_again=load.refused,
        gaps=checker.gaps,
        slowest_seconds=checker.books.slowest,
        violations=[*checker.books.violations, *remaining],
    )


def missing(config: Settings, faults: Counter[str]) -> list[str]:
    """Return the names of the faults that a run should have injected and has not."""
    return [each.name for each in catalogue.FAULTS if config.minutes and not faults[each.name]]


@asynccontextmanager
async def under_load(
    config: Settings, draw: Random, *, report: Callable[[str], None]
) -> AsyncIterator[tuple[World, Checker, Load]]:
    """Yield a cluster on which pods are created and deleted, its checker and its load; stop all of it afterwards."""
    with TemporaryDirectory(prefix="tranche-chaos-") as folder:
        layout = Layout(root=Path(folder), base_port=config.base_port)
        try:
            async with (
                running(layout, config) as world,
                connect(program="tranche-chaos", kubeconfig=str(layout.kubeconfig)) as connection,
            ):
                report("the cluster is up")
                checker = Checker(
                    Api(connection),
                    patience_seconds=config.patience_seconds,
                    lease_seconds=config.lease_seconds,
                    report=lambda each: report(f"VIOLATION {each}"),
                )
                cards = len(settings.NODES) * settings.CARDS
                load = Load(
                    Api(connection, timeout=5.0),
                    namespace=NAMESPACE,
                    books=checker.books,
                    draw=Random(draw.random()),  # noqa: S311
                    rate=config.rate,
                    claims=config.claims,
                    gangs=config.gangs,
                    population=round(cards * settings.SLOTS * _POPULATION_OF_SLOTS),
                )
                await load.create_claims()
                async with checker.watching(), load.coming_and_going():
                    yield world, checker, load
        finally:
            await asyncio.to_thread(_take_down, layout, config.results)


async def _inject(
    config: Settings, world: World, load: Load, *, draw: Random, faults: Counter[str], report: Callable[[str], None]
) -> None:
    """Inject every fault once if any time is given, then one after another until time is over and pods are created.

    A fault of the first round that found nothing to disturb is tried again.
    """
    until = time.monotonic() + 60 * config.minutes
    missed = catalogue.once(draw) if config.minutes else []
    for _ in range(_ATTEMPTS):
        missed = [turn for turn in missed if not await _inject_one(turn, world, draw, faults=faults, report=report)]
    for turn in catalogue.turns(draw):
        if time.monotonic() >= until and load.created >= config.pods:
            return
        await _inject_one(turn, world, draw, faults=faults, report=report)


async def _inject_one(
    turn: Turn, world: World, draw: Random, *, faults: Counter[str], report: Callable[[str], None]
) -> bool:
    """Inject a fault, heal it, and return whether it disturbed anything; only then is it counted."""
    fault = turn.fault()
    report(f"{fault.name}, {turn.hold_seconds:.0f} s")
    try:
        await fault.apply(world, draw)
        await asyncio.sleep(turn.hold_seconds)
    finally:
        await fault.heal(world)
    await asyncio.sleep(turn.pause_seconds)
    if not fault.effects:
        report(f"{fault.name} found nothing to disturb")
        return False
    faults[fault.name] += 1
    return True


def _take_down(layout: Layout, results: Path) -> None:
    """Stop everything, and copy the logs of the processes under test to the results."""
    cluster.down(layout)
    for log in layout.logs.glob("*.log"):
        if log.name.startswith(("scheduler", "webhook", "agent")):
            results.mkdir(parents=True, exist_ok=True)
            (results / log.name).write_bytes(log.read_bytes())
