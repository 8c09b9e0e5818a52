"""The interface of a fault."""

import asyncio
from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from chaos.world import World


class Fault(ABC):
    """A disturbance of the cluster that lasts until it is healed.

    Attributes:
        name: the name in reports.
        hold_seconds: minimum and maximum duration.
        once_seconds: how long it lasts in the first round: long enough to have its effect.
        effects: how much it has disturbed so far: processes, connections, requests.
    """

    name: ClassVar[str]
    hold_seconds: ClassVar[tuple[float, float]] = (1.0, 8.0)
    once_seconds: ClassVar[float] = 1.0
    effects = 0

    @abstractmethod
    async def apply(self, world: World, draw: Random) -> None:
        """Inject the fault."""

    async def heal(self, world: World) -> None:
        """Undo the fault: start what does not run, let all traffic through."""
        await asyncio.to_thread(world.heal)
