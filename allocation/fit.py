"""Does a card fit? One verdict per card, by a handful of comparisons of columns.

Source of the tests and their order: hami.md 2.2.
"""

import numpy as np
from numpy.typing import NDArray

from allocation.ledger import CORES, MEMORY, SLOTS, Columns, Flags
from allocation.reasons import CardReason
from allocation.request import WHOLE_CARD, ContainerRequest

Verdicts = NDArray[np.int8]
"""A CardReason per card, ABSENT where there is none; the shape of the cards that were asked about."""

ABSENT = -1


def memory_need(total: Columns, request: ContainerRequest) -> NDArray[np.int64]:
    """Answer the MiB that `request` takes of each card; the shape of `total` without its first axis."""
    if request.memory_mib is not None:
        return np.full(total.shape[1:], request.memory_mib, np.int64)
    answer: NDArray[np.int64] = total[MEMORY] * request.memory_percent // 100
    return answer


def verdicts(total: Columns, used: Columns, present: Flags, healthy: Flags, request: ContainerRequest) -> Verdicts:
    """Judge every card for one container.

    `total` and `used` have the shape (dimension, …), `present` and `healthy` the shape (…).
    """
    free = total - used
    in_use = used[SLOTS] > 0
    whole = total[CORES] == WHOLE_CARD
    tests = (
        (CardReason.CardNotHealth, ~healthy),
        (CardReason.CardTimeSlicingExhausted, free[SLOTS] < 1),
        (CardReason.CardInsufficientMemory, free[MEMORY] < memory_need(total, request)),
        (CardReason.CardInsufficientCore, free[CORES] < request.cores),
        (CardReason.ExclusiveDeviceAllocateConflict, whole & in_use & (request.cores == WHOLE_CARD)),
        (CardReason.CardComputeUnitsExhausted, (free[CORES] == 0) & (total[CORES] > 0) & (request.cores == 0)),
    )
    answer = np.zeros(present.shape, np.int8)
    for reason, fails in reversed(tests):
        answer[fails] = reason
    answer[~present] = ABSENT
    return answer
