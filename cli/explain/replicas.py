"""How many pods of a workload fit."""

import msgspec

from cli.workloads.workload import Workload
from scheduler.api.simulation_types import Simulation


class Replicas(msgspec.Struct, frozen=True):
    """A summary of a workload's pods.

    Attributes:
        total: the number of pods that the controller keeps at once.
        evaluated: the number of pods that were evaluated.
        fit: how many of these have a node.
        nodes: how many of them each node has.
        note: a remark for the user, or empty.
        unfit: the simulation of the first pod without a node; None if all have one, or only one was evaluated.
    """

    total: int
    evaluated: int
    fit: int
    nodes: dict[str, int] = {}
    note: str = ""
    unfit: Simulation | None = None


def only_first(workload: Workload, first: Simulation) -> Replicas:
    """Return the summary after only the `first` pod was evaluated."""
    if not workload.total:
        return Replicas(0, 1, 0, note=workload.note or "it has 0 replicas; one was evaluated all the same")
    fits = first.error is None
    nodes = {first.schedule_result.suggested_host: 1} if fits else {}
    return Replicas(workload.total, 1, int(fits), nodes, workload.note)
