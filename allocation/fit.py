"""Does a card fit? One verdict per card, by a handful of comparisons of columns.

Source of the tests and their order: hami.md 2.2.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.constraints import Constraints
from allocation.ledger import CORES, MEMORY, SLOTS, Codes, Columns, Flags, Ledger
from allocation.quota import Room
from allocation.reasons import CardReason
from allocation.request import WHOLE_CARD, ContainerRequest

Verdicts = NDArray[np.int8]
"""A CardReason per card, ABSENT where there is none; the shape of the cards that were asked about."""

ABSENT = -1


class Cards(msgspec.Struct):
    """The cards that are judged: some rows of the ledger, (dimension, row, card), or one, (dimension, card).

    Attributes:
        total: capacity.
        used: what is taken; a caller may replace it while it places one container after the other.
        present: whether there is a card; without the dimension, as all that follow.
        healthy: whether its agent says so.
        cordoned: whether an administrator keeps pods away.
        numa: its NUMA node.
        right_type: whether the pod accepts its model and mode.
        right_uuid: whether the pod accepts its UUID.
    """

    total: Columns
    used: Columns
    present: Flags
    healthy: Flags
    cordoned: Flags
    numa: Codes
    right_type: Flags
    right_uuid: Flags


class Demand:
    """A pod's constraints, worked out once for a ledger: which models, which cards."""

    def __init__(self, ledger: Ledger, constraints: Constraints) -> None:
        self.constraints = constraints
        self._ledger = ledger
        self._right_kinds = np.array(
            [constraints.accepts_type(model, mode) for model, mode in ledger.kind_names] or [True], np.bool_
        )
        self._right_uuids: Flags | None = None
        if constraints.use_uuids is not None or constraints.avoid_uuids:
            self._right_uuids = np.full(ledger.present.shape, constraints.use_uuids is None, np.bool_)
            self._mark(constraints.use_uuids or frozenset(), accepted=True)
            self._mark(constraints.avoid_uuids, accepted=False)

    def cards(self, rows: Any) -> Cards:
        """Answer the cards of `rows`, an index or an array of indexes."""
        ledger = self._ledger
        present = ledger.present[rows]
        return Cards(
            total=ledger.total[:, rows],
            used=ledger.used[:, rows],
            present=present,
            healthy=ledger.healthy[rows],
            cordoned=ledger.cordoned[rows],
            numa=ledger.numa[rows],
            right_type=self._right_kinds[ledger.kinds[rows]],
            right_uuid=present if self._right_uuids is None else self._right_uuids[rows],
        )

    def _mark(self, uuids: frozenset[str], *, accepted: bool) -> None:
        for uuid in uuids:
            position = self._ledger.position(uuid)
            if position is not None and self._right_uuids is not None:
                self._right_uuids[position] = accepted


_CURABLE = np.array(
    [
        reason
        not in (
            CardReason.CardNotHealth,
            CardReason.CardCordoned,
            CardReason.CardTypeMismatch,
            CardReason.CardUuidMismatch,
        )
        for reason in CardReason
    ]
    + [False],  # ABSENT
    np.bool_,
)


def curable(cards: Cards, request: ContainerRequest, judged: Verdicts) -> Flags:
    """Answer for each card whether it would take the container if nobody had anything of it."""
    answer: Flags = _CURABLE[judged]
    answer &= cards.total[MEMORY] >= memory_need(cards.total, request)
    answer &= cards.total[CORES] >= request.cores
    return answer


def memory_need(total: Columns, request: ContainerRequest) -> NDArray[np.int64]:
    """Answer the MiB that `request` takes of each card; the shape of `total` without its first axis."""
    if request.memory_mib is not None:
        return np.full(total.shape[1:], request.memory_mib, np.int64)
    answer: NDArray[np.int64] = total[MEMORY] * request.memory_percent // 100
    return answer


def _exceeds(room: Room, request: ContainerRequest, memory_mib: NDArray[np.int64]) -> Flags:
    """Answer for each card whether a container that took all its cards alike would go beyond the room."""
    answer = np.zeros(memory_mib.shape, np.bool_)
    if room.cards is not None and request.count > room.cards:
        answer[:] = True
    if room.cores is not None and request.cores * request.count > room.cores:
        answer[:] = True
    if room.memory_mib is not None:
        answer |= memory_mib * request.count > room.memory_mib
    return answer


def verdicts(cards: Cards, request: ContainerRequest, *, mutex: bool, room: Room) -> Verdicts:
    """Judge every card for one container.

    `mutex` asks for idle cards; `room` is what the namespace's quotas leave.
    """
    free = cards.total - cards.used
    memory = memory_need(cards.total, request)
    in_use = cards.used[SLOTS] > 0
    whole = cards.total[CORES] == WHOLE_CARD
    tests = (
        (CardReason.CardNotHealth, ~cards.healthy),
        (CardReason.CardCordoned, cards.cordoned),
        (CardReason.CardTypeMismatch, ~cards.right_type),
        (CardReason.CardUuidMismatch, ~cards.right_uuid),
        (CardReason.CardTimeSlicingExhausted, free[SLOTS] < 1),
        (CardReason.ExclusiveDeviceAllocateConflict, in_use & mutex),
        (CardReason.ResourceQuotaNotFit, _exceeds(room, request, memory)),
        (CardReason.CardInsufficientMemory, free[MEMORY] < memory),
        (CardReason.CardInsufficientCore, free[CORES] < request.cores),
        (CardReason.ExclusiveDeviceAllocateConflict, whole & in_use & (request.cores == WHOLE_CARD)),
        (CardReason.CardComputeUnitsExhausted, (free[CORES] == 0) & (cards.total[CORES] > 0) & (request.cores == 0)),
    )
    answer = np.zeros(cards.present.shape, np.int8)
    for reason, fails in reversed(tests):
        answer[fails] = reason
    answer[~cards.present] = ABSENT
    return answer
