"""Orders nodes for a pod that requests no GPU: it goes where it strands the fewest cards, and where CPU is scarce."""

from collections.abc import Collection, Sequence

import numpy as np

from allocation.constraints import Constraints
from allocation.placement.host import CPU
from allocation.steps import Steps
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


def best_first(
    state: ClusterState, pod: Pod, constraints: Constraints, nodes: Sequence[str], *, without: Collection[str]
) -> Steps[list[str]]:
    """Return `nodes` in the order of preference; with node policy `spread`, those with few pods come first.

    The pods `without`, given by UID, are taken to be gone.
    """
    stranding, ledger = state.workload.of(pod, constraints), state.ledger
    if stranding is None:
        return sorted(nodes, key=lambda name: (state.node_cache.pods_on(name, without=without), name))
    yield from stranding.prepare()
    rows, costs, free = ledger.rows(nodes), np.zeros(len(nodes)), np.zeros(len(nodes))
    if stranding.mix is None:
        rows[:] = -1
    else:
        with_cards = np.flatnonzero(rows >= 0)
        costs[with_cards] = stranding.of_rows(ledger, rows[with_cards], ())
        free[with_cards] = state.workload.hosts(ledger)[CPU, rows[with_cards]]
    yield
    for place in np.flatnonzero(rows < 0).tolist():
        free[place] = state.workload.free(nodes[place])[0]
    yield
    return [nodes[place] for place in np.lexsort((np.array(nodes), free, costs)).tolist()]
