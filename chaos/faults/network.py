"""Faults of the network between a process and the API server."""

from random import Random

from chaos.faults.fault import Fault
from chaos.replica import Replica
from chaos.world import World

SLOW_SECONDS = 2.0


class _OnTraffic(Fault):
    """A fault of the traffic through proxies."""

    def __init__(self) -> None:
        self._before = 0

    def begin(self, world: World) -> None:
        """Remember how much was disturbed before."""
        self._before = _disturbed(world)

    async def heal(self, world: World) -> None:
        """Let all traffic through, and count what was disturbed."""
        for replica in world.replicas:
            replica.proxy.interference.heal()
        self.effects += _disturbed(world) - self._before


class _OnSome(_OnTraffic):
    """A fault of the proxy of one process, or of all processes."""

    async def apply(self, world: World, draw: Random) -> None:
        """Disturb one process, or all of them."""
        self.begin(world)
        replicas = world.replicas
        for replica in replicas if draw.random() < 0.3 else [draw.choice(replicas)]:
            self.disturb(replica)

    def disturb(self, replica: Replica) -> None:
        """Disturb one process."""
        raise NotImplementedError


class Reset(_OnSome):
    """Every connection is reset once."""

    name = "connections cut"
    hold_seconds = (0.0, 2.0)

    def disturb(self, replica: Replica) -> None:
        """Cut all connections."""
        self.effects += replica.proxy.cut_connections()


class Truncate(_OnSome):
    """Every watch ends in the middle of an event."""

    name = "watches truncated"
    hold_seconds, once_seconds = (1.0, 3.0), 2.0

    def disturb(self, replica: Replica) -> None:
        """Truncate all watches."""
        replica.proxy.truncate_watches()


class Partition(_OnSome):
    """No traffic passes, sometimes for longer than a Lease lasts."""

    name = "partition"
    hold_seconds, once_seconds = (2.0, 15.0), 3.0

    def disturb(self, replica: Replica) -> None:
        """Cut the process off."""
        replica.proxy.interference.cut = True
        replica.proxy.cut_connections()


class LongPartition(Partition):
    """One scheduler is cut off for longer than its Lease lasts."""

    name = "partition longer than a Lease"
    hold_seconds, once_seconds = (15.0, 30.0), 8.0

    async def apply(self, world: World, draw: Random) -> None:
        """Cut one scheduler off; the other one must take over."""
        self.begin(world)
        self.disturb(draw.choice(world.schedulers))


class Slow(_OnSome):
    """Each response is delayed by 2 s."""

    name = "responses take 2 s"
    hold_seconds, once_seconds = (5.0, 10.0), 4.0

    def disturb(self, replica: Replica) -> None:
        """Delay responses."""
        replica.proxy.interference.delay_seconds = SLOW_SECONDS


class LateWatches(_OnSome):
    """Watch events are delayed by 2 s, while responses are not."""

    name = "watches 2 s late"
    hold_seconds, once_seconds = (3.0, 8.0), 4.0

    def disturb(self, replica: Replica) -> None:
        """Delay watch events."""
        replica.proxy.interference.late_events_seconds = SLOW_SECONDS


class Busy(_OnSome):
    """Most requests get the response 429."""

    name = "429 storm"
    hold_seconds, once_seconds = (3.0, 8.0), 3.0

    def disturb(self, replica: Replica) -> None:
        """Reject most requests."""
        replica.proxy.interference.busy = 0.8


class _OnBindings(_OnTraffic):
    """A fault of the Bindings of both schedulers."""

    hold_seconds, once_seconds = (4.0, 8.0), 3.0
    rule = ""

    async def apply(self, world: World, draw: Random) -> None:
        """Disturb a share of the Bindings."""
        self.begin(world)
        share = draw.uniform(0.2, 0.8)
        for replica in world.schedulers:
            setattr(replica.proxy.interference, self.rule, share)


class LoseResponses(_OnBindings):
    """Bindings are applied, but their responses are lost, and watch events are late."""

    name, rule = "responses to Bindings lost", "lost_bindings"

    async def apply(self, world: World, draw: Random) -> None:
        """Drop a share of the responses."""
        await super().apply(world, draw)
        for replica in world.schedulers:
            replica.proxy.interference.late_events_seconds = SLOW_SECONDS


class TruncateResponses(_OnBindings):
    """Bindings are applied, but only half of each response arrives."""

    name, rule = "responses to Bindings truncated", "truncated_bindings"


class CutBindings(_OnBindings):
    """Bindings are cut before they reach the API server."""

    name, rule = "Bindings cut", "cut_bindings"


class LateBindings(_OnBindings):
    """Bindings reach the API server after their sender has given them up and sent others."""

    name, rule = "Bindings late", "late_bindings"


def _disturbed(world: World) -> int:
    return sum(replica.proxy.interference.counts.total() for replica in world.replicas)
