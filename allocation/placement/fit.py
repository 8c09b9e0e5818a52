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
    TFLOPS,
    Codes,
    Columns,
    Flags,
)
from allocation.ledger.isolation_locks import IDLE, IsolationLocks, Locks
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
        counts_tflops: whether a pod requests compute in TFLOPs, so that fewer of these may be free than of the cores;
            otherwise both are free in proportion.
        locks: which isolation locks it; None if none is locked. A caller may replace them as it replaces `used`.
        isolation: the codes of the locks.
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
    locks: Locks | None
    isolation: IsolationLocks
    counts_tflops: bool = False


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
            locks=ledger.isolation.locks[rows] if ledger.rules.locks_isolation else None,
            isolation=ledger.isolation,
            counts_tflops=ledger.tflops_holders > 0,
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
    if request.tflops:
        flags &= _most_tflops(cards) >= request.tflops
    else:
        flags &= cards.total[CORES] >= request.cores
    return flags


def requested_memory(whole_mib: NDArray[np.int64], request: ContainerRequest) -> NDArray[np.int64] | np.int64:
    """Return the MiB that `request` takes of each card; `whole_mib` is what a percentage refers to."""
    if request.memory_mib is not None:
        return np.int64(request.memory_mib)
    memory: NDArray[np.int64] = whole_mib * request.memory_percent // 100
    return memory


_Amounts = NDArray[np.int64] | np.int64
"""By card, or the same for all."""


def _rates(cards: Cards) -> NDArray[np.int64]:
    """Return the TFLOPs of a whole card of each card's model, which are the thousandths of TFLOPs of a millicard."""
    rates: NDArray[np.int64] = cards.total[TFLOPS] // np.maximum(cards.total[CORES], 1)
    return rates


def _most_tflops(cards: Cards) -> NDArray[np.int64]:
    """Return the thousandths of TFLOPs that one container may have: those of a whole card, also if cores are scaled."""
    most: NDArray[np.int64] = np.minimum(cards.total[TFLOPS], _rates(cards) * WHOLE_CARD)
    return most


def _requested_cores(cards: Cards, request: ContainerRequest) -> _Amounts:
    """Return the millicards that `request` takes of each card; of TFLOPs that are not known none can be taken."""
    return request.tflops // np.maximum(_rates(cards), 1) if request.tflops else np.int64(request.cores)


def _lacks_compute(cards: Cards, request: ContainerRequest, cores: _Amounts) -> Flags:
    """Return the cards on which too little compute is free, in either measure."""
    lacks: Flags = cards.total[CORES] - cards.used[CORES] < cores
    if request.tflops:
        lacks |= cards.total[TFLOPS] - cards.used[TFLOPS] < request.tflops
        lacks |= _most_tflops(cards) < request.tflops
    elif cards.counts_tflops:
        lacks |= cards.total[TFLOPS] - cards.used[TFLOPS] < _rates(cards) * cores
    return lacks


def _exceeds(query: ContainerQuery, cards: Cards, memory: _Amounts, cores: _Amounts) -> Flags:
    """Return for each card whether the container would exceed the headroom if all its cards were like this one."""
    request, headroom = query.request, query.headroom
    tflops: _Amounts = np.int64(request.tflops)
    if headroom.tflops is not None and not request.tflops:
        tflops = _rates(cards) * cores
    if cards.mig_roles is not None:
        is_instance = cards.mig_roles == INSTANCE
        memory = np.where(is_instance, cards.total[MEMORY], memory)
        cores = np.where(is_instance, cards.total[CORES], cores)
        tflops = np.where(is_instance, cards.total[TFLOPS], tflops)
    exceeds = np.zeros(cards.present.shape, np.bool_)
    if headroom.cards is not None and request.count > headroom.cards:
        exceeds[:] = True
    if headroom.cores is not None:
        exceeds |= cores * request.count > headroom.cores
    if headroom.memory_mib is not None:
        exceeds |= memory * request.count > headroom.memory_mib
    if headroom.tflops is not None:
        exceeds |= tflops * request.count > headroom.tflops
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
    if cards.locks is not None:
        yield CardReason.CardModeLocked, _locked(cards, cards.locks, query.isolation)
    if cards.uuid_accepted is not None:
        yield CardReason.CardUuidMismatch, ~cards.uuid_accepted
    if cards.mig_roles is not None:
        yield CardReason.ModeNotFit, cards.mig_roles == PLUGIN_MANAGED
    if query.card_kind != "any":
        yield CardReason.ModeNotFit, _of_other_kind(cards, query.card_kind)
    in_use = cards.used[SLOTS] > 0
    yield from _shared_too_often(cards, query, in_use)
    memory = requested_memory(cards.whole_mib, request)
    cores = _requested_cores(cards, request)
    if query.headroom.is_limited:
        yield CardReason.ResourceQuotaNotFit, _exceeds(query, cards, memory, cores)
    yield CardReason.CardInsufficientMemory, cards.total[MEMORY] - cards.used[MEMORY] < memory
    insufficient = CardReason.CardInsufficientTflops if request.tflops else CardReason.CardInsufficientCore
    yield insufficient, _lacks_compute(cards, request, cores)
    if request.tflops or request.cores == WHOLE_CARD:
        is_whole = (cards.total[CORES] == WHOLE_CARD) & (cores == WHOLE_CARD)
        yield CardReason.ExclusiveDeviceAllocateConflict, in_use & is_whole
    if not request.cores and not request.tflops:
        yield CardReason.CardComputeUnitsExhausted, (cards.used[CORES] == cards.total[CORES]) & (cards.total[CORES] > 0)
    if cards.mig_roles is not None:
        yield CardReason.CardMigTopologyInfeasible, cards.mig_roles == MIG_ENABLED


def _locked(cards: Cards, locks: Locks, isolation: str) -> Flags:
    """Return the cards that pods share and that are locked to another isolation."""
    locked: Flags = (locks != IDLE) & (locks != cards.isolation.code(isolation))
    return locked if cards.mig_roles is None else locked & (cards.mig_roles == SHARED)


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
