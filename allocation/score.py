"""How good a fit is. HAMi's formulas (hami.md 2.3), with the request counted, as they were meant."""

import numpy as np
from numpy.typing import NDArray

from allocation.fit import memory_need
from allocation.ledger import CORES, MEMORY, SLOTS, Columns
from allocation.request import ContainerRequest, PodRequest
from allocation.settings import Weights

Scores = NDArray[np.float64]
"""0 (empty) to 30 (full): ten for each of slots, cores and memory."""


def _shares(used: Columns, total: Columns) -> NDArray[np.float64]:
    """Answer how full each is, 0 where there is no capacity."""
    answer: NDArray[np.float64] = np.divide(used, total, out=np.zeros(total.shape, np.float64), where=total > 0)
    return answer


def card_scores(total: Columns, used: Columns, request: ContainerRequest, weights: Weights) -> Scores:
    """Score each card as it would be with the container on it; shapes (dimension, card) to (card,)."""
    after = used.copy()
    after[MEMORY] += memory_need(total[MEMORY], request)
    after[CORES] += request.cores
    after[SLOTS] += 1
    factors = np.zeros(total.shape[0])
    factors[[SLOTS, CORES, MEMORY]] = (weights.slot, weights.core, weights.memory)
    answer: Scores = np.tensordot(factors, _shares(after, total), axes=1) * 10
    return answer


def node_scores(total: Columns, used: Columns, request: PodRequest) -> Scores:
    """Score each node as it would be with the pod on it; shapes (dimension, row, card) to (row,).

    A percentage of memory is taken of the node's mean card: which cards it will be is not decided yet.
    """
    capacity = total.sum(axis=2)
    after = used.sum(axis=2)
    cards = np.maximum((total[SLOTS] > 0).sum(axis=1), 1)
    for container in request.gpu_containers:
        after[MEMORY] += memory_need(capacity[MEMORY] // cards, container) * container.count
        after[CORES] += container.cores * container.count
        after[SLOTS] += container.count
    answer: Scores = _shares(after, capacity).sum(axis=0) * 10
    return answer
