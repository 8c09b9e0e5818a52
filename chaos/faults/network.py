"""What a network does between a process and the API server."""

from random import Random

from chaos.faults.fault import Fault
from chaos.replica import Replica
from chaos.world import World

SLOW_SECONDS = 2.0


class _OnSome(Fault):
    """A fault of the proxies of one process or of all."""

    async def apply(self, world: World, draw: Random) -> None:
        """Do it to one process, or to all."""
        replicas = world.replicas
        for replica in replicas if draw.random() < 0.3 else [draw.choice(replicas)]:
            self.spoil(replica)

    def spoil(self, replica: Replica) -> None:
        """Do it to one."""
        raise NotImplementedError

    async def heal(self, world: World) -> None:
        """Let everything through."""
        for replica in world.replicas:
            replica.proxy.interference.heal()


class Reset(_OnSome):
    """Every connection is reset, once."""

    name = "connections cut"
    hold_seconds = (0.0, 2.0)

    def spoil(self, replica: Replica) -> None:
        """Cut them."""
        replica.proxy.cut_connections()


class Truncate(_OnSome):
    """Every watch ends in the middle of an event."""

    name = "watches truncated"
    hold_seconds = (1.0, 3.0)

    def spoil(self, replica: Replica) -> None:
        """Truncate them."""
        replica.proxy.truncate_watches()


class Partition(_OnSome):
    """Nothing gets through, sometimes for longer than a Lease lasts."""

    name = "partition"
    hold_seconds = (2.0, 15.0)

    def spoil(self, replica: Replica) -> None:
        """Cut it off."""
        replica.proxy.interference.cut = True
        replica.proxy.cut_connections()


class LongPartition(Partition):
    """The same for half a minute."""

    name = "partition of 30 s"
    hold_seconds = (30.0, 30.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Cut one scheduler off: the other one has to do."""
        self.spoil(draw.choice(world.schedulers))


class Slow(_OnSome):
    """Each answer comes 2 s late."""

    name = "answers of 2 s"
    hold_seconds = (5.0, 10.0)

    def spoil(self, replica: Replica) -> None:
        """Slow it down."""
        replica.proxy.interference.delay_seconds = SLOW_SECONDS


class LateWatches(_OnSome):
    """What watches tell is 2 s old, while requests are answered at once."""

    name = "watches 2 s late"
    hold_seconds = (3.0, 8.0)

    def spoil(self, replica: Replica) -> None:
        """Hold events back."""
        replica.proxy.interference.late_events_seconds = SLOW_SECONDS


class Busy(_OnSome):
    """Most requests are answered 429."""

    name = "429 storm"
    hold_seconds = (3.0, 8.0)

    def spoil(self, replica: Replica) -> None:
        """Refuse."""
        replica.proxy.interference.busy = 0.8


class _OnBindings(Fault):
    """A fault of Bindings, whichever scheduler sends them."""

    hold_seconds = (4.0, 8.0)
    rule = ""

    async def apply(self, world: World, draw: Random) -> None:
        """Spoil a share of them."""
        share = draw.uniform(0.2, 0.8)
        for replica in world.schedulers:
            setattr(replica.proxy.interference, self.rule, share)

    async def heal(self, world: World) -> None:
        """Let them through."""
        for replica in world.schedulers:
            replica.proxy.interference.heal()


class LoseAnswers(_OnBindings):
    """The API server takes Bindings, and nobody hears of it, by watch either, for a while."""

    name, rule = "answers to Bindings lost", "lost_bindings"

    async def apply(self, world: World, draw: Random) -> None:
        """Lose a share of them."""
        await super().apply(world, draw)
        for replica in world.schedulers:
            replica.proxy.interference.late_events_seconds = SLOW_SECONDS


class TruncateAnswers(_OnBindings):
    """The same, and half of each answer arrives."""

    name, rule = "answers to Bindings truncated", "truncated_bindings"


class CutBindings(_OnBindings):
    """Bindings are cut before the API server has them."""

    name, rule = "Bindings cut", "cut_bindings"


class LateBindings(_OnBindings):
    """Bindings reach the API server when their sender has given them up and sent others."""

    name, rule = "Bindings late", "late_bindings"
