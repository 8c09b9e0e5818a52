"""CPU and memory: nodes with much of both free are better, or those with little, by the configured strategy.

The rules are those of kube-scheduler's score plugin NodeResourcesFit (pkg/scheduler/framework/plugins/noderesources,
v1.34) with its default resources: CPU and memory, weight 1 each.
"""

from typing import Literal

from allocation.steps import Steps
from scheduler.filters import resources, scored_requests
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import BEST

Strategy = Literal["LeastAllocated", "MostAllocated"]


def scores(pod: Pod, candidates: Candidates, node_cache: NodeCache, *, strategy: Strategy) -> Steps[Scores]:
    """Return the score of each candidate."""
    requested, sums = scored_requests.of_pending(pod), node_cache.scored_requests
    most = strategy == "MostAllocated"

    def score(node: Node) -> int:
        name = node.metadata.name
        allocatable, used = node_cache.allocatable.get(name, {}), sums.on(name) if sums is not None else (0, 0)
        shares = [
            _share(used[place] + requested[place], capacity, most=most)
            for place, resource in enumerate((resources.CPU, resources.MEMORY))
            if (capacity := allocatable.get(resource, 0))
        ]
        return sum(shares) // len(shares) if shares else 0

    return (yield from candidates.numbers(score, ("node resources", requested, strategy)))


def _share(used: int, capacity: int, *, most: bool) -> int:
    """Return the used or the free percentage of a capacity, rounded down.

    Pods without requests count with a default, so a node may appear to be used beyond its capacity.
    """
    used = min(used, capacity)
    return (used if most else capacity - used) * BEST // capacity
