"""Whether a card fits a container: one verdict per card, by a few comparisons of columns.

The tests and their order are HAMi's: rules 2.2 of tests/conformance.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.constraints import CardKind, Constraints
from allocation.ledger.card_table import (
    CORES,
    INSTANCE,
    MEMORY,
    MIG_ENABLED,
    PLUGIN_MANAGED,
    SHARED,
    SLOTS,
    Codes,
    Columns,
    Flags,
)
from allocation.ledger.ledger import Ledger
from allocation.placement.query import ContainerQuery
from allocation.reasons import CardReason
from allocation.request import WHOLE_CARD, ContainerRequest

Verdicts = NDArray[np.int8]
"""A CardReason per card, ABSENT for a position without a card; the shape of the evaluated cards."""

ABSENT = -1


class Cards(msgspec.Struct):
    """Cards to evaluate: several rows of the ledger, (dimension, row, card), or one row, (dimension, card).

    Attributes:
        rows: the rows of the ledger; an array with one entry where it is one row.
        total: capacity.
        used: used amounts; a caller may replace them while it places one container after the other.
        present: whether there is a card; this and all that follow have no dimension axis.
        healthy: whether the agent reports it healthy.
        cordoned: whether an administrator keeps new pods from it.
        numa: its NUMA node.
        type_accepted: whether the pod accepts its model and mode; None if it accepts all.
        uuid_accepted: whether the pod accepts its UUID; None if it accepts all.
        mig_roles: what each card is under MIG (`CardTable.mig_roles`); None if no node has a card in MIG mode.
        whole_mib: the memory that a percentage refers to.
    """

    rows: NDArray[np.int64]
    total: Columns
    used: Columns
    present: Flags
    healthy: Flags
    cordoned: Flags
    numa: Codes
    type_accepted: Flags | None
    uuid_accepted: Flags | None
    mig_roles: Codes | None
    whole_mib: NDArray[np.int64]


class ConstraintMasks:
    """A pod's constraints, evaluated once for a ledger: which models and which cards the pod accepts."""

    def __init__(self, ledger: Ledger, constraints: Constraints) -> None:
        self.ledger = ledger
        self._all_rows = np.arange(len(ledger.fullness))
        self._accepted_kinds: NDArray[np.bool_] | None = None
        if constraints.chooses_types:
            self._accepted_kinds = np.array(
                [constraints.accepts_type(model, mode) for model, mode in ledger.kind_names] or [True], np.bool_
            )
        self._accepted_uuids: Flags | None = None
        if constraints.chooses_uuids:
            self._accepted_uuids = np.full(ledger.present.shape, constraints.use_uuids is None, np.bool_)
            self._mark(constraints.use_uuids or frozenset(), accepted=True)
            self._mark(constraints.avoid_uuids, accepted=False)

    def cards(self, rows: Any) -> Cards:
        """Return the cards of `rows`, an index or an array of indexes."""
        ledger = self.ledger
        present = ledger.present[rows]
        total = ledger.total[:, rows]
        return Cards(
            rows=np.atleast_1d(self._all_rows[rows]),
            total=total,
            used=ledger.used[:, rows],
            present=present,
            healthy=ledger.healthy[rows],
            cordoned=ledger.cordoned[rows],
            numa=ledger.numa[rows],
            type_accepted=None if self._accepted_kinds is None else self._accepted_kinds[ledger.kinds[rows]],
            uuid_accepted=None if self._accepted_uuids is None else self._accepted_uuids[rows],
            mig_roles=ledger.mig_roles[rows] if ledger.mig_nodes else None,
            whole_mib=ledger.whole_mib[rows] if ledger.mig_nodes else total[MEMORY],
        )

    def _mark(self, uuids: frozenset[str], *, accepted: bool) -> None:
        """Accept or reject these cards; the UUID of a card in MIG mode includes its instances."""
        for uuid in uuids:
            position = self.ledger.position(uuid)
            if position is not None and self._accepted_uuids is not None:
                for each in (position, *self.ledger.instances(uuid)):
                    self._accepted_uuids[each] = accepted


_RESOLVABLE = np.array(
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


def resolvable(cards: Cards, request: ContainerRequest, judged: Verdicts) -> Flags:
    """Return for each card whether it would fit the container if no pod held any of it."""
    flags: Flags = _RESOLVABLE[judged]
    flags &= cards.total[MEMORY] >= requested_memory(cards.whole_mib, request)
    flags &= cards.total[CORES] >= request.cores
    return flags


def requested_memory(whole_mib: NDArray[np.int64], request: ContainerRequest) -> NDArray[np.int64] | np.int64:
    """Return the MiB that `request` takes of each card; `whole_mib` is what a percentage refers to."""
    if request.memory_mib is not None:
        return np.int64(request.memory_mib)
    memory: NDArray[np.int64] = whole_mib * request.memory_percent // 100
    return memory


def _exceeds(query: ContainerQuery, cards: Cards, memory: NDArray[np.int64] | np.int64) -> Flags:
    """Return for each card whether the container would exceed the headroom if all its cards were like this one."""
    request, headroom = query.request, query.headroom
    cores: NDArray[np.int64] | np.int64 = np.int64(request.cores)
    if cards.mig_roles is not None:
        is_instance = cards.mig_roles == INSTANCE
        memory = np.where(is_instance, cards.total[MEMORY], memory)
        cores = np.where(is_instance, cards.total[CORES], cores)
    exceeds = np.zeros(cards.present.shape, np.bool_)
    if headroom.cards is not None and request.count > headroom.cards:
        exceeds[:] = True
    if headroom.cores is not None:
        exceeds |= cores * request.count > headroom.cores
    if headroom.memory_mib is not None:
        exceeds |= memory * request.count > headroom.memory_mib
    return exceeds


def _of_other_kind(cards: Cards, kind: CardKind) -> Flags:
    """Return the cards of another kind; a card in MIG mode counts as an instance, because it may get one."""
    if cards.mig_roles is None:
        return np.full(cards.present.shape, kind == "instance")
    others: Flags = (cards.mig_roles == SHARED) == (kind == "instance")
    return others


Failures = Iterator[tuple[CardReason, Flags]]


def _failures(cards: Cards, query: ContainerQuery) -> Failures:
    """Yield the cards that fail each test, in HAMi's order; tests that no card can fail are left out.

    A MIG instance is charged whole. A card in MIG mode is never allocated itself, so it fits no container.
    """
    request = query.request
    yield CardReason.CardNotHealth, ~cards.healthy
    yield CardReason.CardCordoned, cards.cordoned
    if cards.type_accepted is not None:
        yield CardReason.CardTypeMismatch, ~cards.type_accepted
    if cards.uuid_accepted is not None:
        yield CardReason.CardUuidMismatch, ~cards.uuid_accepted
    if cards.mig_roles is not None:
        yield CardReason.ModeNotFit, cards.mig_roles == PLUGIN_MANAGED
    if query.card_kind != "any":
        yield CardReason.ModeNotFit, _of_other_kind(cards, query.card_kind)
    in_use = cards.used[SLOTS] > 0
    yield from _shared_too_often(cards, query, in_use)
    memory = requested_memory(cards.whole_mib, request)
    if query.headroom.is_limited:
        yield CardReason.ResourceQuotaNotFit, _exceeds(query, cards, memory)
    yield CardReason.CardInsufficientMemory, cards.total[MEMORY] - cards.used[MEMORY] < memory
    free_cores = cards.total[CORES] - cards.used[CORES]
    yield CardReason.CardInsufficientCore, free_cores < request.cores
    if request.cores == WHOLE_CARD:
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use & (cards.total[CORES] == WHOLE_CARD)
    if not request.cores:
        yield CardReason.CardComputeUnitsExhausted, (free_cores == 0) & (cards.total[CORES] > 0)
    if cards.mig_roles is not None:
        yield CardReason.CardMigTopologyInfeasible, cards.mig_roles == MIG_ENABLED


def _shared_too_often(cards: Cards, query: ContainerQuery, in_use: Flags) -> Failures:
    """Yield the cards that have no room for one more container; for a whole card, any other is the reason."""
    if query.request.whole:
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use
    yield CardReason.CardTimeSlicingExhausted, cards.used[SLOTS] >= cards.total[SLOTS]
    if query.idle_only:
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use


def fitting(cards: Cards, query: ContainerQuery) -> Flags:
    """Return for each card whether it fits the container."""
    fits = cards.present.copy()
    for _, fails in _failures(cards, query):
        fits &= ~fails
    return fits


def verdicts(cards: Cards, query: ContainerQuery) -> Verdicts:
    """Return for each card the first test that it fails, or FITS."""
    codes = np.zeros(cards.present.shape, np.int8)
    for reason, fails in reversed(tuple(_failures(cards, query))):
        codes[fails] = reason
    codes[~cards.present] = ABSENT
    return codes
