"""How good a fit is: HAMi's formulas (docs/hami.md), with the request included, as they were meant.

Slots, cores and memory count up to ten each: 0 is empty, 30 is full. The score of a node is its current fullness plus
what the pod adds to it, so it changes only when the node does. Each formula exists twice, for all nodes at once and
for one node, which costs a hundredth; a test compares both to the last bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import CORES, MEMORY, SLOTS, TFLOPS, NodeFacts
from allocation.ledger.ledger import Ledger
from allocation.request import ContainerRequest
from allocation.settings import Weights

Scores = NDArray[np.float64]
Amounts = NDArray[np.int64]


def card_scores(
    positions: Sequence[int],
    *,
    total: Sequence[Sequence[int]],
    used: Sequence[Sequence[int]],
    request: ContainerRequest,
    weights: Weights,
) -> dict[int, float]:
    """Score the cards of one node at `positions` as if the container were on them.

    `total` and `used` are lists by dimension and card. A dimension without capacity counts as empty.
    """
    memory_total, core_total, slot_total, tflops_total = total
    memory_used, core_used, slot_used, _ = used
    fixed, percent, cores, in_tflops = request.memory_mib, request.memory_percent, request.cores, request.tflops > 0
    memory_weight, core_weight, slot_weight = weights.memory, weights.core, weights.slot
    scores = {}
    for card in positions:
        memory = memory_total[card]
        after = memory_used[card] + (memory * percent // 100 if fixed is None else fixed)
        if in_tflops:
            cores = request.cores_on(tflops_total[card] // max(core_total[card], 1))
        scores[card] = (
            memory_weight * (after / memory if memory else 0.0)
            + core_weight * ((core_used[card] + cores) / core_total[card] if core_total[card] else 0.0)
            + slot_weight * ((slot_used[card] + 1) / slot_total[card] if slot_total[card] else 0.0)
        ) * 10
    return scores


def node_scores(ledger: Ledger, containers: Sequence[ContainerRequest]) -> Scores:
    """Score every row of the ledger as if these containers, which all request a GPU, were on it."""
    capacity, (memory, cores) = ledger.capacity, requested_of_rows(ledger, containers)
    slots = sum(container.count for container in containers)
    added = _shares(memory, capacity[MEMORY]) + _shares(cores, capacity[CORES]) + _shares(slots, capacity[SLOTS])
    scores: Scores = ledger.fullness + added * 10
    return scores


def requested_of_rows(ledger: Ledger, containers: Sequence[ContainerRequest]) -> tuple[Amounts, Amounts]:
    """Return the MiB and the millicards that containers request of the node of each row.

    A percentage of memory refers to the node's mean card, because the cards are not selected yet, and so do TFLOPs.
    """
    capacity = ledger.capacity
    memory, cores = np.zeros((2, capacity.shape[1]), np.int64)
    for container in containers:
        if container.memory_mib is not None:
            memory += container.memory_mib * container.count
        else:
            cards = np.maximum((ledger.total[SLOTS] > 0).sum(axis=1), 1)
            memory += capacity[MEMORY] // cards * container.memory_percent // 100 * container.count
        cores += _cores_on(container, capacity, np.maximum) * container.count
    return memory, cores


def node_score(fullness: float, facts: NodeFacts, containers: Sequence[ContainerRequest]) -> float:
    """Score one node as if these containers, which all request a GPU, were on it."""
    (memory, cores, slots), capacity = requested(facts, containers), facts.capacity
    added = _share(memory, capacity[MEMORY]) + _share(cores, capacity[CORES]) + _share(slots, capacity[SLOTS])
    return fullness + added * 10


def requested(facts: NodeFacts, containers: Sequence[ContainerRequest]) -> tuple[int, int, int]:
    """Return the MiB, the millicards and the slots that containers request of a node (`requested_of_rows`)."""
    memory = cores = slots = 0
    for container in containers:
        memory += container.memory_on(facts.mean_mib) * container.count
        own = container.cores if not container.tflops else _cores_on(container, facts.capacity, max)
        cores += own * container.count
        slots += container.count
    return memory, cores, slots


def _cores_on(container: ContainerRequest, capacity: Any, most: Any) -> Any:
    """Return the millicards that a container requests of a mean card: of one node, or of many with `numpy.maximum`."""
    if not container.tflops:
        return container.cores
    return container.tflops * capacity[CORES] // most(capacity[TFLOPS], 1)


def _share(used: int, total: int) -> float:
    """Return the used share of a capacity, 0 if the capacity is 0."""
    return used / total if total else 0.0


def _shares(used: NDArray[np.int64] | int, total: NDArray[np.int64]) -> Scores:
    shares: Scores = np.divide(used, total, out=np.zeros(total.shape), where=total > 0)
    return shares
