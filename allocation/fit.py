"""Does a card fit? One verdict per card, by a handful of comparisons of columns.

Source of the tests and their order: hami.md 2.2.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.constraints import Constraints
from allocation.ledger import CORES, DIVIDED, FOREIGN, INSTANCE, MEMORY, SLOTS, Codes, Columns, Flags, Ledger
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
        divisions: what each card is under MIG (see the ledger); None where no node has cards in MIG mode.
        whole_mib: what a percentage of its memory refers to.
    """

    total: Columns
    used: Columns
    present: Flags
    healthy: Flags
    cordoned: Flags
    numa: Codes
    right_type: Flags
    right_uuid: Flags
    divisions: Codes | None
    whole_mib: NDArray[np.int64]


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
        total = ledger.total[:, rows]
        return Cards(
            total=total,
            used=ledger.used[:, rows],
            present=present,
            healthy=ledger.healthy[rows],
            cordoned=ledger.cordoned[rows],
            numa=ledger.numa[rows],
            right_type=self._right_kinds[ledger.kinds[rows]],
            right_uuid=present if self._right_uuids is None else self._right_uuids[rows],
            divisions=ledger.divisions[rows] if ledger.divided else None,
            whole_mib=ledger.whole_mib[rows] if ledger.divided else total[MEMORY],
        )

    def _mark(self, uuids: frozenset[str], *, accepted: bool) -> None:
        """Accept these cards or not; one in MIG mode stands for its instances."""
        for uuid in uuids:
            position = self._ledger.position(uuid)
            if position is not None and self._right_uuids is not None:
                for each in (position, *self._ledger.instances(uuid)):
                    self._right_uuids[each] = accepted


def memory_need(whole_mib: NDArray[np.int64], request: ContainerRequest) -> NDArray[np.int64]:
    """Answer the MiB that `request` takes of each card; the shape of `whole_mib`, the cards' memory."""
    if request.memory_mib is not None:
        return np.full(whole_mib.shape, request.memory_mib, np.int64)
    answer: NDArray[np.int64] = whole_mib * request.memory_percent // 100
    return answer


def verdicts(cards: Cards, request: ContainerRequest, *, mutex: bool, room: Room) -> Verdicts:
    """Judge every card for one container.

    `mutex` asks for idle cards; `room` is what the namespace's quotas leave. A MIG instance is charged whole. A card in
    MIG mode is never given itself, so it fits nobody.
    """
    free = cards.total - cards.used
    memory = memory_need(cards.whole_mib, request)
    charged = memory
    cores: NDArray[np.int64] | np.int64 = np.int64(request.cores)
    in_use = cards.used[SLOTS] > 0
    whole = cards.total[CORES] == WHOLE_CARD
    foreign: tuple[tuple[CardReason, Flags], ...] = ()
    divided: tuple[tuple[CardReason, Flags], ...] = ()
    if cards.divisions is not None:
        foreign = ((CardReason.ModeNotFit, cards.divisions == FOREIGN),)
        divided = ((CardReason.CardMigTopologyInfeasible, cards.divisions == DIVIDED),)
        is_instance = cards.divisions == INSTANCE
        charged = np.where(is_instance, cards.total[MEMORY], memory)
        cores = np.where(is_instance, cards.total[CORES], cores)
    tests = (
        (CardReason.CardNotHealth, ~cards.healthy),
        (CardReason.CardCordoned, cards.cordoned),
        (CardReason.CardTypeMismatch, ~cards.right_type),
        (CardReason.CardUuidMismatch, ~cards.right_uuid),
        *foreign,
        (CardReason.CardTimeSlicingExhausted, free[SLOTS] < 1),
        (CardReason.ExclusiveDeviceAllocateConflict, in_use & mutex),
        (CardReason.ResourceQuotaNotFit, room.is_exceeded(request, charged, cores)),
        (CardReason.CardInsufficientMemory, free[MEMORY] < memory),
        (CardReason.CardInsufficientCore, free[CORES] < request.cores),
        (CardReason.ExclusiveDeviceAllocateConflict, whole & in_use & (request.cores == WHOLE_CARD)),
        (CardReason.CardComputeUnitsExhausted, (free[CORES] == 0) & (cards.total[CORES] > 0) & (request.cores == 0)),
        *divided,
    )
    answer = np.zeros(cards.present.shape, np.int8)
    for reason, fails in reversed(tests):
        answer[fails] = reason
    answer[~cards.present] = ABSENT
    return answer
