"""What a fault is."""

import asyncio
from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from chaos.world import World


class Fault(ABC):
    """Something that is done to the cluster and lasts until it is healed.

    Attributes:
        name: what it is counted as.
        hold_seconds: between which it lasts.
    """

    name: ClassVar[str]
    hold_seconds: ClassVar[tuple[float, float]] = (1.0, 8.0)

    @abstractmethod
    async def apply(self, world: World, draw: Random) -> None:
        """Do it."""

    async def heal(self, world: World) -> None:
        """Undo it: what does not run is started, what is held back is let through."""
        await asyncio.to_thread(world.heal)
