"""Another size for a pod that runs: whether it fits beside what else is on the same cards, and what is left then.

The library and the scheduler share this. A pod keeps its cards and their number; only the amounts change.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from allocation import per_pod_quota
from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.ledger.card_table import CORES, MEMORY, TFLOPS
from allocation.ledger.ledger import Ledger, Reservation
from allocation.quota import UNLIMITED, Headroom
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, PodRequest
from allocation.settings import AllocationSettings


class Amounts(msgspec.Struct, frozen=True):
    """Memory in MiB, compute in millicards and in thousandths of TFLOPs; a difference may be negative."""

    memory_mib: int = 0
    cores: int = 0
    tflops: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        """Return the sum of both."""
        return Amounts(self.memory_mib + other.memory_mib, self.cores + other.cores, self.tflops + other.tflops)

    def __sub__(self, other: "Amounts") -> "Amounts":
        """Return the difference of both."""
        return Amounts(self.memory_mib - other.memory_mib, self.cores - other.cores, self.tflops - other.tflops)

    def __str__(self) -> str:
        """Return them as a person reads them."""
        tflops = f" ({self.tflops / MILLI_PER_TFLOP:g} TFLOPs)" if self.tflops else ""
        return f"{self.memory_mib} MiB and {self.cores / MILLI_PER_PERCENT:g} % of a card's cores{tflops}"


NOTHING: Final = Amounts()


class ScalingQuotaExceededError(AllocationError):
    """A card or a quota has too little left for the new size of a pod.

    Attributes:
        remaining: what is free on each card of the pod now, by UUID, beside what the pod has.
    """

    def __init__(self, message: str, remaining: Mapping[str, Amounts]) -> None:
        """Describe what is exceeded, and say what is left."""
        self.remaining = remaining
        super().__init__(message)


def is_scaling_quota_exceeded_error(error: BaseException | None) -> bool:
    """Whether `error` is a ScalingQuotaExceededError, or was raised from one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ScalingQuotaExceededError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class Quotas(msgspec.Struct, frozen=True):
    """What limits the pod in addition to its cards.

    Attributes:
        specs: the GpuQuotas of its namespace by name, of which `single` limits the new size.
        headroom: what its namespace and its queue may still request, beside what the pod has now.
        limits: what its namespace may still use, beside what the pod may use now.
    """

    specs: Mapping[str, QuotaSpec] = MappingProxyType({})
    headroom: Headroom = UNLIMITED
    limits: Headroom = UNLIMITED


class Adjustment(msgspec.Struct, frozen=True):
    """What a new size changes.

    Attributes:
        charges: what the pod is charged from then on.
        remaining: what is free on each card of the pod then, by UUID.
        request_delta: how much more the pod has, over all its cards.
        limit_delta: how much more its containers may use, over all their cards.
    """

    charges: tuple[Charge, ...]
    remaining: Mapping[str, Amounts]
    request_delta: Amounts
    limit_delta: Amounts


def adjust(
    ledger: Ledger,
    uid: str,
    charges: Iterable[Charge],
    *,
    request: PodRequest,
    settings: AllocationSettings,
    quotas: Quotas = Quotas(),  # noqa: B008 -- frozen
    limit_delta: Amounts | None = None,
    dry_run: bool = False,
) -> Adjustment:
    """Charge a bound pod `charges` instead of what it has, unless a card or a quota has too little left.

    `request` has the most that each container may use of each card, which the quotas of single pods limit.
    `limit_delta` is how much that grows over all cards, where the charges do not say it: a limit is checked even if
    only it grows. Totals are checked for what grows, and never the number of pods: the pod exists.

    What shrinks always fits. A card that the pod has whole stays taken whole, and its amounts need only be within the
    card's capacity. A dry run changes nothing.

    Raises:
        ScalingQuotaExceededError: too little is left, and nothing was changed.
        AllocationError: no bound pod has this UID, its cards would change, or it has MIG instances.
    """
    old, new = _reservation(ledger, uid), tuple(charges)
    before, free = {each.uuid: each for each in old.charges}, remaining(ledger, uid)
    _check_cards(old, new, ledger)
    for each in new:
        _check_card(ledger, old.node, before[each.uuid], each, free)
    grown = _sum(ledger, new) - _sum(ledger, old.charges)
    limited = grown + _bursts(new) - _bursts(old.charges) if limit_delta is None else limit_delta
    if why := per_pod_quota.exceeded(request, quotas.specs, settings):
        raise ScalingQuotaExceededError(why, free)
    for delta, headroom in ((grown, quotas.headroom), (limited, quotas.limits)):
        if why := exceeded_total(delta, headroom):
            raise ScalingQuotaExceededError(why, free)
    left = {
        each.uuid: free[each.uuid]
        if each.whole
        else free[each.uuid] - (charged(ledger, each) - charged(ledger, before[each.uuid]))
        for each in new
    }
    if not dry_run:
        ledger.record(uid, old.node, new)
    return Adjustment(new, left, grown, limited)


def remaining(ledger: Ledger, uid: str) -> dict[str, Amounts]:
    """Return what is free now on each card of a bound pod, by UUID; nothing of a card that its node has lost.

    Raises:
        AllocationError: no bound pod has this UID.
    """
    found = {}
    for charge in _reservation(ledger, uid).charges:
        position = ledger.position(charge.uuid)
        free = ledger.free(*position) if position is not None else None
        found[charge.uuid] = NOTHING if free is None else Amounts(free[MEMORY], free[CORES], free[TFLOPS])
    return found


def exceeded_total(delta: Amounts, headroom: Headroom) -> str:
    """Return the total limits that a pod that grows by `delta` would exceed, or an empty string."""
    grown = (max(delta.memory_mib, 0), max(delta.cores, 0), 0, max(delta.tflops, 0))
    excesses = [
        f"{limit.kind} {limit.name} limits {limit.resource} to {limit.amount}: {max(left, 0) // limit.unit} are left,"
        f" {-(-more // limit.unit)} more are needed"
        for limit, left, more in zip(headroom.limits, headroom.left, grown, strict=True)
        if limit is not None and left is not None and more > max(left, 0)
    ]
    return "; ".join(excesses)


def charged(ledger: Ledger, charge: Charge) -> Amounts:
    """Return what a charge is of its card; in TFLOPs only what it says itself, if the card is not known."""
    position = ledger.position(charge.uuid)
    tflops = charge.tflops if position is None else ledger.charged(charge, *position)[TFLOPS]
    return Amounts(charge.memory_mib, charge.cores, tflops)


def _reservation(ledger: Ledger, uid: str) -> Reservation:
    found = ledger.reservation(uid)
    if found is None or found.assumed or not found.is_pod:
        raise AllocationError(f"no bound pod with cards has the UID {uid}")
    return found


def _check_cards(old: Reservation, new: Iterable[Charge], ledger: Ledger) -> None:
    """Check that a pod keeps its cards, which are there and no MIG instances."""
    if [_fixed(each) for each in old.charges] != [_fixed(each) for each in new]:
        raise AllocationError("a pod keeps its cards: only their memory and cores can be adjusted")
    for each in old.charges:
        if each.parent:
            raise AllocationError(f"{each.uuid} is a MIG instance, whose size is fixed")
        if ledger.position(each.uuid) is None:
            raise AllocationError(f"node {old.node} does not report card {each.uuid} any more")


def _fixed(charge: Charge) -> tuple[object, ...]:
    return charge.uuid, charge.slots, charge.parent, charge.whole


def _check_card(ledger: Ledger, node: str, old: Charge, new: Charge, free: Mapping[str, Amounts]) -> None:
    position = ledger.position(new.uuid)
    if position is None:
        raise AllocationError(f"node {node} does not report card {new.uuid} any more")
    (row, card), has, needs = position, charged(ledger, old), charged(ledger, new)
    most = free[new.uuid] + has
    if new.whole:
        most = Amounts(*(ledger.facts(row).total[each][card] for each in (MEMORY, CORES, TFLOPS)))
    lacks_memory = needs.memory_mib > max(has.memory_mib, most.memory_mib)
    lacks_compute = needs.cores > max(has.cores, most.cores) or needs.tflops > max(has.tflops, most.tflops)
    if lacks_memory or lacks_compute:
        raise ScalingQuotaExceededError(
            f"card {new.uuid} on node {node} has {most} for the pod, which would need {needs}", free
        )


def _sum(ledger: Ledger, charges: Iterable[Charge]) -> Amounts:
    return sum((charged(ledger, each) for each in charges), NOTHING)


def _bursts(charges: Iterable[Charge]) -> Amounts:
    return sum((Amounts(each.burst_memory_mib, each.burst_cores) for each in charges), NOTHING)
