"""What a run of chaos is told."""

from pathlib import Path

import msgspec

from cluster.election import ElectionSettings

STEADY_NODES = ("steady-0", "steady-1", "steady-2")
FLEETING_NODE = "fleeting-0"
NODES = (*STEADY_NODES, FLEETING_NODE)
CARDS, SLOTS, CARD_MIB = 8, 10, 81920


class Caution(msgspec.Struct, frozen=True):
    """How long schedulers wait for one another.

    Attributes:
        election: who leads, and for how long without proof.
        bind_seconds: the time limit of a Binding; a new leader waits as long for those of the old one.
    """

    election: ElectionSettings
    bind_seconds: float


CAUTIOUS = Caution(ElectionSettings(lease_seconds=6.0, renew_deadline_seconds=5.0, retry_seconds=0.5), 2.0)
HASTY = Caution(ElectionSettings(lease_seconds=1.5, renew_deadline_seconds=1.2, retry_seconds=0.2), 1.2)
"""For hundreds of takeovers."""


class Settings(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        minutes: for how long faults are done.
        seed: of everything that is drawn. The machine's own moods remain.
        base_port: the first of the cluster's ports.
        pods: how many are created at least, whatever the minutes.
        rate: how many are created a second.
        kills: schedulers killed while they bind, at least.
        lost_bindings: Bindings taken whose answer was lost, at least.
        patience_seconds: how long a pod that fits may wait.
        results: the folder for what was seen.
    """

    minutes: float = 6.0
    seed: int = 1
    base_port: int = 32000
    pods: int = 0
    rate: float = 8.0
    kills: int = 0
    lost_bindings: int = 0
    patience_seconds: float = 90.0
    results: Path = Path(".lab/chaos")

    @property
    def caution(self) -> Caution:
        """How long schedulers wait for one another: not long where hundreds of them are to be killed."""
        return HASTY if self.kills else CAUTIOUS
