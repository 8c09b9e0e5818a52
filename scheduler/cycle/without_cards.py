"""Orders nodes for a pod that requests no GPU: it goes where it strands the fewest cards, and where CPU is scarce."""

from collections.abc import Collection, Sequence

import numpy as np

from allocation.constraints import Constraints
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
    rows, costs = ledger.rows(nodes), np.zeros(len(nodes))
    with_cards = np.flatnonzero(rows >= 0)
    costs[with_cards] = stranding.of_rows(ledger, rows[with_cards], ())
    free = np.zeros(len(nodes), np.int64)
    free[with_cards] = state.workload.columns(ledger)[rows[with_cards], 0]
    yield
    for place in np.flatnonzero(rows < 0).tolist():
        free[place] = state.workload.free(nodes[place])[0]
    yield
    return [nodes[place] for place in np.lexsort((np.array(nodes), free, costs)).tolist()]
