"""Every fault there is, and the order in which a seed has them come."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from chaos.faults import clock, control_plane, network, nodes, processes
from chaos.faults.fault import Fault

FAULTS: tuple[type[Fault], ...] = (
    processes.KillScheduler,
    processes.KillWebhook,
    processes.KillAgent,
    processes.KillBoth,
    processes.FreezeScheduler,
    processes.FreezeWebhook,
    processes.FreezeAgent,
    processes.RollingRestart,
    network.Reset,
    network.Truncate,
    network.Partition,
    network.LongPartition,
    network.Slow,
    network.LateWatches,
    network.Busy,
    network.LoseAnswers,
    network.TruncateAnswers,
    network.CutBindings,
    network.LateBindings,
    control_plane.RestartApiServer,
    control_plane.KillApiServer,
    control_plane.Compact,
    clock.Skew,
    nodes.Vanish,
)
_PAUSE_SECONDS = (0.5, 3.0)


class Turn(NamedTuple):
    """One fault: which, how long it lasts, how long nothing is done afterwards."""

    fault: type[Fault]
    hold_seconds: float
    pause_seconds: float


def turns(draw: Random, faults: Sequence[type[Fault]] = FAULTS) -> Iterator[Turn]:
    """Answer faults without end; none comes a second time before every other one has come."""
    while True:
        for fault in draw.sample(faults, len(faults)):
            yield Turn(fault, draw.uniform(*fault.hold_seconds), draw.uniform(*_PAUSE_SECONDS))
