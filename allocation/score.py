"""How good a fit is. HAMi's formulas (hami.md 2.3), with the request counted, as they were meant.

Ten for each of slots, cores and memory: 0 is empty, 30 is full. The score of a node is its present fullness plus what
the pod adds to it, so it changes only where the node does. Each formula stands here twice, for all nodes at once and
for one: the second costs a hundredth, and a test holds both to the same last bit.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocation.card_table import CORES, MEMORY, SLOTS, Facts
from allocation.ledger import Ledger
from allocation.request import ContainerRequest
from allocation.settings import Weights

Scores = NDArray[np.float64]


def card_scores(
    total: Sequence[Sequence[int]],
    used: Sequence[Sequence[int]],
    request: ContainerRequest,
    weights: Weights,
    cards: Sequence[int],
) -> dict[int, float]:
    """Score `cards` of one node as they would be with the container on them; `total` and `used` by dimension and card.

    What has no capacity is not full.
    """
    memory_total, core_total, slot_total = total
    memory_used, core_used, slot_used = used
    fixed, percent, cores = request.memory_mib, request.memory_percent, request.cores
    of_memory, of_cores, of_slots = weights.memory, weights.core, weights.slot
    answer = {}
    for card in cards:
        memory = memory_total[card]
        after = memory_used[card] + (memory * percent // 100 if fixed is None else fixed)
        answer[card] = (
            of_memory * (after / memory if memory else 0.0)
            + of_cores * ((core_used[card] + cores) / core_total[card] if core_total[card] else 0.0)
            + of_slots * ((slot_used[card] + 1) / slot_total[card] if slot_total[card] else 0.0)
        ) * 10
    return answer


def node_scores(ledger: Ledger, containers: Sequence[ContainerRequest]) -> Scores:
    """Score every row of the ledger as it would be with these containers, which all ask for a GPU, on it.

    A percentage of memory is taken of the node's mean card: which cards it will be is not decided yet.
    """
    capacity = ledger.capacity
    memory = np.zeros(capacity.shape[1], np.int64)
    cores = slots = 0
    for container in containers:
        if container.memory_mib is not None:
            memory += container.memory_mib * container.count
        else:
            cards = np.maximum((ledger.total[SLOTS] > 0).sum(axis=1), 1)
            memory += capacity[MEMORY] // cards * container.memory_percent // 100 * container.count
        cores += container.cores * container.count
        slots += container.count
    added = _shares(memory, capacity[MEMORY]) + _shares(cores, capacity[CORES]) + _shares(slots, capacity[SLOTS])
    answer: Scores = ledger.fullness + added * 10
    return answer


def node_score(fullness: float, facts: Facts, containers: Sequence[ContainerRequest]) -> float:
    """Score one node the same way with the containers that ask for a GPU."""
    memory = cores = slots = 0
    for container in containers:
        memory += container.memory_on(facts.mean_mib) * container.count
        cores += container.cores * container.count
        slots += container.count
    capacity = facts.capacity
    added = _share(memory, capacity[MEMORY]) + _share(cores, capacity[CORES]) + _share(slots, capacity[SLOTS])
    return fullness + added * 10


def _share(used: int, total: int) -> float:
    """Answer how full something is, 0 where there is no capacity."""
    return used / total if total else 0.0


def _shares(used: NDArray[np.int64] | int, total: NDArray[np.int64]) -> Scores:
    answer: Scores = np.divide(used, total, out=np.zeros(total.shape), where=total > 0)
    return answer
