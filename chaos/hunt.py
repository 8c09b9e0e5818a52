"""The hunt: kill schedulers while they bind, again and again, and drop responses to Bindings."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from chaos.interference import Stage, Treatment
from chaos.replica import Replica
from chaos.world import World

PODS_A_SECOND = 1.2
"""What schedulers can place although each is killed within ten Bindings; more pods would only wait."""
KILL = "SIGKILL scheduler while it binds"
_REPORT_EVERY = 50
_LOST_SHARE = 0.15
_LATE_EVENTS_SECONDS = 1.0
_LATE_SECONDS = (0.0, 0.05)
_MAX_SKIP = 10


async def hunt(
    world: World,
    draw: Random,
    *,
    kills: int,
    lost_bindings: int,
    faults: Counter[str],
    report: Callable[[str], None],
) -> None:
    """Kill the scheduler that binds next, `kills` times, and drop responses until `lost_bindings` were lost."""
    while faults[KILL] < kills or lost(world) < lost_bindings:
        for replica in world.schedulers:
            is_losing = lost(world) < lost_bindings
            replica.proxy.interference.lost_bindings = _LOST_SHARE if is_losing else 0.0
            # Otherwise the watch would report the result at once.
            replica.proxy.interference.late_events_seconds = _LATE_EVENTS_SECONDS if is_losing else 0.0
        if faults[KILL] >= kills:
            await asyncio.sleep(1.0)
            continue
        await _kill_next_binder(world, draw)
        faults[KILL] += 1
        if faults[KILL] % _REPORT_EVERY == 0:
            report(f"{faults[KILL]} schedulers killed while binding, {lost(world)} responses to Bindings lost")
    world.heal()


def lost(world: World) -> int:
    """Return the number of Bindings so far that were applied and whose response was dropped."""
    return sum(each.proxy.interference.counts[Treatment.LOSE.value] for each in world.schedulers)


async def _kill_next_binder(world: World, draw: Random) -> None:
    """Kill the sender of one of the next Bindings: before the request, before the response, or up to 50 ms later."""
    caught: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
    late = draw.choice((0.0, draw.uniform(*_LATE_SECONDS)))
    stage, skip = draw.choice(tuple(Stage)), draw.randrange(_MAX_SKIP)

    def trigger(victim: Replica) -> None:
        if not caught.done():
            caught.set_result(victim)
            if not late:
                victim.signal(signal.SIGKILL)

    for replica in world.schedulers:
        replica.proxy.interference.call_at(stage, partial(trigger, replica), skip=skip)
    victim = await caught
    await asyncio.sleep(late)
    await asyncio.to_thread(victim.kill)
    victim.start()
