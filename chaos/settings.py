"""The settings of a run, and the size of its cluster."""

from pathlib import Path

import msgspec

from cluster.election import ElectionSettings

STEADY_NODES = ("steady-0", "steady-1", "steady-2")
FLEETING_NODE = "fleeting-0"
NODES = (*STEADY_NODES, FLEETING_NODE)
CARDS, SLOTS, CARD_MIB = 8, 10, 81920


class Timing(msgspec.Struct, frozen=True):
    """How long schedulers wait for each other.

    Attributes:
        election: the durations of the leader election.
        bind_seconds: the time limit of a Binding; a new leader waits as long for the Bindings of the old one.
    """

    election: ElectionSettings
    bind_seconds: float


NORMAL = Timing(ElectionSettings(lease_seconds=6.0, renew_deadline_seconds=5.0, retry_seconds=0.5), 2.0)
FAST_TAKEOVER = Timing(ElectionSettings(lease_seconds=1.5, renew_deadline_seconds=1.2, retry_seconds=0.2), 1.2)
"""Used when a run has hundreds of takeovers."""


class Settings(msgspec.Struct, frozen=True):
    """The settings of a run.

    Attributes:
        minutes: how long faults are injected.
        seed: the seed of everything that is random; only the machine's own timing varies between runs.
        base_port: the first of the cluster's ports.
        pods: minimum number of pods to create, whatever the minutes.
        rate: pods to create per second.
        claims: share of the pods that get their cards by a GpuClaim, 0 to 1.
        gangs: share of the creations that are those of a gang: pods that get nodes together, 0 to 1.
        kills: minimum number of schedulers to kill while they bind.
        lost_bindings: minimum number of applied Bindings whose response is lost.
        patience_seconds: how long a schedulable pod may wait.
        lease_seconds: how long the Leases of cards may differ from the pods while faults are injected. Without faults a
            leader needs 70 s at most; one fault after the other can stop each of its attempts.
        results: the directory for logs and figures.
    """

    minutes: float = 6.0
    seed: int = 1
    base_port: int = 32000
    pods: int = 0
    rate: float = 8.0
    claims: float = 0.1
    gangs: float = 0.03
    kills: int = 0
    lost_bindings: int = 0
    patience_seconds: float = 90.0
    lease_seconds: float = 180.0
    results: Path = Path(".lab/chaos")

    @property
    def timing(self) -> Timing:
        """How long schedulers wait for each other: short when hundreds of them are to be killed."""
        return FAST_TAKEOVER if self.kills else NORMAL
