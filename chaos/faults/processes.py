"""Faults of processes: SIGKILL, SIGSTOP, and rolling restarts."""

import asyncio
import signal
from random import Random

from chaos.faults.fault import Fault
from chaos.replica import Replica
from chaos.world import World


class Kill(Fault):
    """One replica gets SIGKILL."""

    role = ""

    async def apply(self, world: World, draw: Random) -> None:
        """Kill one replica."""
        self.effects += await asyncio.to_thread(_chosen(world, self.role, draw).kill)


class KillScheduler(Kill):
    """SIGKILL of one of the two schedulers."""

    name, role = "SIGKILL scheduler", "scheduler"


class KillWebhook(Kill):
    """SIGKILL of one of the two webhooks."""

    name, role = "SIGKILL webhook", "webhook"


class KillAgent(Kill):
    """SIGKILL of the agent, sometimes for longer than its heartbeat lasts."""

    name, role = "SIGKILL agent", "agent"
    hold_seconds = (1.0, 15.0)


class KillBoth(Fault):
    """SIGKILL of both schedulers at once, so that no standby remains."""

    name = "SIGKILL both schedulers"

    async def apply(self, world: World, draw: Random) -> None:
        """Kill both schedulers."""
        del draw
        self.effects += sum(await asyncio.gather(*(asyncio.to_thread(each.kill) for each in world.schedulers)))


class Freeze(Fault):
    """One replica gets SIGSTOP; when it continues, its state is out of date."""

    role = ""

    def __init__(self) -> None:
        self._frozen: Replica | None = None

    async def apply(self, world: World, draw: Random) -> None:
        """Freeze one replica."""
        self._frozen = _chosen(world, self.role, draw)
        self.effects += self._frozen.signal(signal.SIGSTOP)

    async def heal(self, world: World) -> None:
        """Let the replica continue."""
        del world
        if self._frozen is not None:
            self._frozen.signal(signal.SIGCONT)


class FreezeScheduler(Freeze):
    """SIGSTOP of one scheduler, sometimes for longer than its Lease lasts."""

    name, role = "SIGSTOP scheduler", "scheduler"
    hold_seconds, once_seconds = (1.0, 12.0), 7.0


class FreezeWebhook(Freeze):
    """SIGSTOP of one of the two webhooks."""

    name, role = "SIGSTOP webhook", "webhook"


class FreezeAgent(Freeze):
    """SIGSTOP of the agent, sometimes for longer than its heartbeat lasts."""

    name, role = "SIGSTOP agent", "agent"
    hold_seconds, once_seconds = (1.0, 15.0), 10.0


class RollingRestart(Fault):
    """Replicas are restarted one after another; each must be ready before the next is stopped."""

    name = "rolling restart"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Restart the replicas of one role."""
        for replica in draw.choice((world.schedulers, world.webhooks)):
            self.effects += replica.pid is not None
            await asyncio.to_thread(replica.stop)
            replica.start()
            await asyncio.to_thread(replica.until_ready)


def _chosen(world: World, role: str, draw: Random) -> Replica:
    return draw.choice([each for each in world.replicas if each.role == role])
