"""Faults in great number: the scheduler killed while it binds, again and again, and answers to Bindings lost."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from chaos.interference import Fate, Stage
from chaos.replica import Replica
from chaos.world import World

PODS_A_SECOND = 1.2
"""What schedulers place though they bind fewer than ten pods each: more would only wait."""
KILL = "SIGKILL scheduler while it binds"
_TOLD_EVERY = 50
_LOST_SHARE = 0.15
_LATE_EVENTS_SECONDS = 1.0
_LATE_SECONDS = (0.0, 0.05)
_UNHARMED = 10


async def hunt(
    world: World,
    draw: Random,
    *,
    kills: int,
    lost_bindings: int,
    faults: Counter[str],
    report: Callable[[str], None],
) -> None:
    """Kill whoever binds next, `kills` times, and lose answers until `lost_bindings` were lost in all."""
    while faults[KILL] < kills or lost(world) < lost_bindings:
        for replica in world.schedulers:
            loses = lost(world) < lost_bindings
            replica.proxy.interference.lost_bindings = _LOST_SHARE if loses else 0.0
            # Or a watch would tell what the answer did not.
            replica.proxy.interference.late_events_seconds = _LATE_EVENTS_SECONDS if loses else 0.0
        if faults[KILL] >= kills:
            await asyncio.sleep(1.0)
            continue
        await _kill_who_binds(world, draw)
        faults[KILL] += 1
        if faults[KILL] % _TOLD_EVERY == 0:
            report(f"{faults[KILL]} schedulers were killed while they bound, {lost(world)} answers lost")
    world.heal()


def lost(world: World) -> int:
    """Answer how many Bindings were taken so far whose answer never came."""
    return sum(each.proxy.interference.counts[Fate.LOSE.value] for each in world.schedulers)


async def _kill_who_binds(world: World, draw: Random) -> None:
    """Kill whoever sends one of the next Bindings: before it is sent, before it is answered, or a bit later."""
    caught: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
    late = draw.choice((0.0, draw.uniform(*_LATE_SECONDS)))
    stage, unharmed = draw.choice(tuple(Stage)), draw.randrange(_UNHARMED)

    def spring(victim: Replica) -> None:
        if not caught.done():
            caught.set_result(victim)
            if not late:
                victim.signal(signal.SIGKILL)

    for replica in world.schedulers:
        replica.proxy.interference.lie_in_wait(stage, partial(spring, replica), unharmed=unharmed)
    victim = await caught
    await asyncio.sleep(late)
    await asyncio.to_thread(victim.kill)
    victim.start()
