"""Processes that end without a word, that freeze and wake up too late, that are restarted in order."""

import asyncio
import signal
from random import Random

from chaos.faults.fault import Fault
from chaos.replica import Replica
from chaos.world import World


class Kill(Fault):
    """SIGKILL of one replica."""

    role = ""

    async def apply(self, world: World, draw: Random) -> None:
        """Kill one of them."""
        await asyncio.to_thread(_chosen(world, self.role, draw).kill)


class KillScheduler(Kill):
    """Of the scheduler: whichever of the two."""

    name, role = "SIGKILL scheduler", "scheduler"


class KillWebhook(Kill):
    """Of the webhook."""

    name, role = "SIGKILL webhook", "webhook"


class KillAgent(Kill):
    """Of the agent, sometimes for longer than its heartbeat lasts."""

    name, role = "SIGKILL agent", "agent"
    hold_seconds = (1.0, 15.0)


class KillBoth(Fault):
    """Both schedulers at once: nobody stands by."""

    name = "SIGKILL both schedulers"

    async def apply(self, world: World, draw: Random) -> None:
        """Kill them."""
        del draw
        await asyncio.gather(*(asyncio.to_thread(each.kill) for each in world.schedulers))


class Freeze(Fault):
    """SIGSTOP of one replica; it wakes up and knows nothing of what happened meanwhile."""

    role = ""

    def __init__(self) -> None:
        self._frozen: Replica | None = None

    async def apply(self, world: World, draw: Random) -> None:
        """Freeze one of them."""
        self._frozen = _chosen(world, self.role, draw)
        self._frozen.signal(signal.SIGSTOP)

    async def heal(self, world: World) -> None:
        """Let it go on."""
        del world
        if self._frozen is not None:
            self._frozen.signal(signal.SIGCONT)


class FreezeScheduler(Freeze):
    """Of the scheduler, sometimes for longer than its Lease lasts."""

    name, role = "SIGSTOP scheduler", "scheduler"
    hold_seconds = (1.0, 12.0)


class FreezeWebhook(Freeze):
    """Of the webhook."""

    name, role = "SIGSTOP webhook", "webhook"


class FreezeAgent(Freeze):
    """Of the agent, sometimes for longer than its heartbeat lasts."""

    name, role = "SIGSTOP agent", "agent"
    hold_seconds = (1.0, 15.0)


class RollingRestart(Fault):
    """SIGTERM and a new process, one replica after the other, each waited for."""

    name = "rolling restart"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Restart the replicas of one role."""
        for replica in draw.choice((world.schedulers, world.webhooks)):
            await asyncio.to_thread(replica.stop)
            replica.start()
            await asyncio.to_thread(replica.until_ready)


def _chosen(world: World, role: str, draw: Random) -> Replica:
    return draw.choice([each for each in world.replicas if each.role == role])
