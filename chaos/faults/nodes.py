"""Faults of nodes: a node is deleted with its pods, and returns under its old name."""

import asyncio
import os
import signal
from random import Random

from chaos import settings
from chaos.faults.fault import Fault
from chaos.world import World
from lab import components
from lab.client import client
from lab.processes import Daemon


class Vanish(Fault):
    """The kubelet dies and the Node is deleted; Kubernetes' pod garbage collector deletes its pods later."""

    name = "node vanished"
    hold_seconds, once_seconds = (2.0, 20.0), 3.0

    async def apply(self, world: World, draw: Random) -> None:
        """Kill the kubelet and delete the Node."""
        del draw
        kubelet = Daemon(world.layout, world.kubelet(settings.FLEETING_NODE).name)
        if kubelet.pid is not None:
            os.kill(kubelet.pid, signal.SIGKILL)
        await asyncio.to_thread(kubelet.stop)
        # After a recent fault the kubelet may not have registered the Node again yet.
        api = client(world.layout)
        self.effects += await asyncio.to_thread(api.find, "node", settings.FLEETING_NODE) is not None
        await asyncio.to_thread(api.delete, "node", settings.FLEETING_NODE, missing_ok=True)

    async def heal(self, world: World) -> None:
        """Start the kubelet, which registers the Node again."""
        await asyncio.to_thread(components.start, world.layout, world.kubelet(settings.FLEETING_NODE))
