"""A node that vanishes with its pods, and comes back as if nothing had been."""

import asyncio
import os
import signal
from random import Random

from chaos import settings
from chaos.faults.fault import Fault
from chaos.world import World
from lab import components, kubectl
from lab.processes import Daemon


class Vanish(Fault):
    """The kubelet dies and the Node is deleted; Kubernetes' garbage collector takes the pods in its own time."""

    name = "node vanished"
    hold_seconds = (2.0, 20.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Take the node away."""
        del draw
        kubelet = Daemon(world.layout, world.kubelet(settings.FLEETING_NODE).name)
        if kubelet.pid is not None:
            os.kill(kubelet.pid, signal.SIGKILL)
        await asyncio.to_thread(kubelet.stop)
        # Where it has just been away, its kubelet may not have brought the Node back yet.
        delete = ("delete", "node", settings.FLEETING_NODE, "--ignore-not-found")
        await asyncio.to_thread(kubectl.run, world.layout, *delete)

    async def heal(self, world: World) -> None:
        """Bring it back under its name."""
        await asyncio.to_thread(components.start, world.layout, world.kubelet(settings.FLEETING_NODE))
