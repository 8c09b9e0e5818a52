"""Does a card fit? One verdict per card, by a handful of comparisons of columns.

Source of the tests and their order: hami.md 2.2.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.card_table import CORES, DIVIDED, FOREIGN, INSTANCE, MEMORY, SLOTS, Codes, Columns, Flags
from allocation.constraints import Constraints
from allocation.ledger import Ledger
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
        right_type: whether the pod accepts its model and mode; None where it accepts all.
        right_uuid: whether the pod accepts its UUID; None where it accepts all.
        divisions: what each card is under MIG (see the ledger); None where no node has cards in MIG mode.
        whole_mib: what a percentage of its memory refers to.
    """

    total: Columns
    used: Columns
    present: Flags
    healthy: Flags
    cordoned: Flags
    numa: Codes
    right_type: Flags | None
    right_uuid: Flags | None
    divisions: Codes | None
    whole_mib: NDArray[np.int64]


class Demand:
    """A pod's constraints, worked out once for a ledger: which models, which cards."""

    def __init__(self, ledger: Ledger, constraints: Constraints) -> None:
        self.ledger = ledger
        self._right_kinds: NDArray[np.bool_] | None = None
        if constraints.chooses_types:
            self._right_kinds = np.array(
                [constraints.accepts_type(model, mode) for model, mode in ledger.kind_names] or [True], np.bool_
            )
        self._right_uuids: Flags | None = None
        if constraints.chooses_uuids:
            self._right_uuids = np.full(ledger.present.shape, constraints.use_uuids is None, np.bool_)
            self._mark(constraints.use_uuids or frozenset(), accepted=True)
            self._mark(constraints.avoid_uuids, accepted=False)

    def cards(self, rows: Any) -> Cards:
        """Answer the cards of `rows`, an index or an array of indexes."""
        ledger = self.ledger
        present = ledger.present[rows]
        total = ledger.total[:, rows]
        return Cards(
            total=total,
            used=ledger.used[:, rows],
            present=present,
            healthy=ledger.healthy[rows],
            cordoned=ledger.cordoned[rows],
            numa=ledger.numa[rows],
            right_type=None if self._right_kinds is None else self._right_kinds[ledger.kinds[rows]],
            right_uuid=None if self._right_uuids is None else self._right_uuids[rows],
            divisions=ledger.divisions[rows] if ledger.divided else None,
            whole_mib=ledger.whole_mib[rows] if ledger.divided else total[MEMORY],
        )

    def _mark(self, uuids: frozenset[str], *, accepted: bool) -> None:
        """Accept these cards or not; one in MIG mode stands for its instances."""
        for uuid in uuids:
            position = self.ledger.position(uuid)
            if position is not None and self._right_uuids is not None:
                for each in (position, *self.ledger.instances(uuid)):
                    self._right_uuids[each] = accepted


_CURABLE = np.array(
    [
        reason
        not in (
            CardReason.CardNotHealth,
            CardReason.CardCordoned,
            CardReason.CardTypeMismatch,
            CardReason.CardUuidMismatch,
            CardReason.ModeNotFit,
            CardReason.CardMigTopologyInfeasible,
        )
        for reason in CardReason
    ]
    + [False],  # ABSENT
    np.bool_,
)


def curable(cards: Cards, request: ContainerRequest, judged: Verdicts) -> Flags:
    """Answer for each card whether it would take the container if nobody had anything of it."""
    answer: Flags = _CURABLE[judged]
    answer &= cards.total[MEMORY] >= memory_need(cards.whole_mib, request)
    answer &= cards.total[CORES] >= request.cores
    return answer


def memory_need(whole_mib: NDArray[np.int64], request: ContainerRequest) -> NDArray[np.int64] | np.int64:
    """Answer the MiB that `request` takes of each card; `whole_mib` is the cards' memory."""
    if request.memory_mib is not None:
        return np.int64(request.memory_mib)
    answer: NDArray[np.int64] = whole_mib * request.memory_percent // 100
    return answer


def _exceeds(room: Room, request: ContainerRequest, cards: Cards, memory: NDArray[np.int64] | np.int64) -> Flags:
    """Answer for each card whether a container that took all its cards alike would go beyond the room."""
    cores: NDArray[np.int64] | np.int64 = np.int64(request.cores)
    if cards.divisions is not None:
        is_instance = cards.divisions == INSTANCE
        memory = np.where(is_instance, cards.total[MEMORY], memory)
        cores = np.where(is_instance, cards.total[CORES], cores)
    answer = np.zeros(cards.present.shape, np.bool_)
    if room.cards is not None and request.count > room.cards:
        answer[:] = True
    if room.cores is not None:
        answer |= cores * request.count > room.cores
    if room.memory_mib is not None:
        answer |= memory * request.count > room.memory_mib
    return answer


Failures = Iterator[tuple[CardReason, Flags]]


def _failures(cards: Cards, request: ContainerRequest, *, mutex: bool, room: Room) -> Failures:
    """Answer which cards fail which test, in HAMi's order, without the tests that no card could fail.

    A MIG instance is charged whole. A card in MIG mode is never given itself, so it fits nobody.
    """
    yield CardReason.CardNotHealth, ~cards.healthy
    yield CardReason.CardCordoned, cards.cordoned
    if cards.right_type is not None:
        yield CardReason.CardTypeMismatch, ~cards.right_type
    if cards.right_uuid is not None:
        yield CardReason.CardUuidMismatch, ~cards.right_uuid
    if cards.divisions is not None:
        yield CardReason.ModeNotFit, cards.divisions == FOREIGN
    yield CardReason.CardTimeSlicingExhausted, cards.used[SLOTS] >= cards.total[SLOTS]
    in_use = cards.used[SLOTS] > 0
    if mutex:
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use
    memory = memory_need(cards.whole_mib, request)
    if room.is_limited:
        yield CardReason.ResourceQuotaNotFit, _exceeds(room, request, cards, memory)
    yield CardReason.CardInsufficientMemory, cards.total[MEMORY] - cards.used[MEMORY] < memory
    free_cores = cards.total[CORES] - cards.used[CORES]
    if request.cores:
        yield CardReason.CardInsufficientCore, free_cores < request.cores
    if request.cores == WHOLE_CARD:
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use & (cards.total[CORES] == WHOLE_CARD)
    if not request.cores:
        yield CardReason.CardComputeUnitsExhausted, (free_cores == 0) & (cards.total[CORES] > 0)
    if cards.divisions is not None:
        yield CardReason.CardMigTopologyInfeasible, cards.divisions == DIVIDED


def fitting(cards: Cards, request: ContainerRequest, *, mutex: bool, room: Room) -> Flags:
    """Answer which cards fit a container; the shape of the cards.

    `mutex` asks for idle cards; `room` is what the namespace's quotas leave.
    """
    answer = cards.present.copy()
    for _, fails in _failures(cards, request, mutex=mutex, room=room):
        answer &= ~fails
    return answer


def verdicts(cards: Cards, request: ContainerRequest, *, mutex: bool, room: Room) -> Verdicts:
    """Answer for every card the first test that it fails for a container, or that it fits."""
    answer = np.zeros(cards.present.shape, np.int8)
    for reason, fails in reversed(tuple(_failures(cards, request, mutex=mutex, room=room))):
        answer[fails] = reason
    answer[~cards.present] = ABSENT
    return answer
