"""Clock skew between replicas."""

from random import Random

from chaos.faults.fault import Fault
from chaos.world import World

_MINUTES = (-10.0, -1.5, 1.5, 10.0)


class Skew(Fault):
    """The wall clock of one process jumps, by up to ten minutes, and jumps back."""

    name = "clock skew"
    hold_seconds, once_seconds = (5.0, 15.0), 4.0

    async def apply(self, world: World, draw: Random) -> None:
        """Shift the wall clock of one process."""
        world.clocks.put(draw.choice(world.replicas).name, 60 * draw.choice(_MINUTES))
        self.effects += 1

    async def heal(self, world: World) -> None:
        """Reset all wall clocks."""
        for replica in world.replicas:
            world.clocks.put(replica.name, 0.0)
