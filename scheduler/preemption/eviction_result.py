"""What became of the victims of a preemption."""

import msgspec

from scheduler.metrics.labels import EvictionOutcome
from scheduler.preemption.victim import Victim


class EvictionResult(msgspec.Struct, frozen=True):
    """An outcome.

    Attributes:
        outcome: how it ended; unless it is EVICTED, the other victims live.
        evicted: the victims that the API server has evicted, in this order.
        note: why it ended early, for the log: it may name pods of other namespaces.
    """

    outcome: EvictionOutcome
    evicted: tuple[Victim, ...] = ()
    note: str = ""
