"""All faults, and the order in which a seed injects them."""

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
    network.LoseResponses,
    network.TruncateResponses,
    network.CutBindings,
    network.LateBindings,
    control_plane.RestartApiServer,
    control_plane.KillApiServer,
    control_plane.Compact,
    clock.Skew,
    nodes.Vanish,
)
_PAUSE_SECONDS = (0.5, 3.0)
_SHORT_PAUSE_SECONDS = 0.5


class Turn(NamedTuple):
    """One fault, how long it lasts, and the pause after it."""

    fault: type[Fault]
    hold_seconds: float
    pause_seconds: float


def once(draw: Random, faults: Sequence[type[Fault]] = FAULTS) -> list[Turn]:
    """Return every fault once, for as long as it needs to have its effect, in random order."""
    return [Turn(fault, fault.once_seconds, _SHORT_PAUSE_SECONDS) for fault in draw.sample(faults, len(faults))]


def turns(draw: Random, faults: Sequence[type[Fault]] = FAULTS) -> Iterator[Turn]:
    """Yield faults of random durations without end. No fault is repeated before all others were injected."""
    while True:
        for fault in draw.sample(faults, len(faults)):
            yield Turn(fault, draw.uniform(*fault.hold_seconds), draw.uniform(*_PAUSE_SECONDS))
