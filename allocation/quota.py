"""Quotas of a namespace: the `limits.` keys of GPU resources in ResourceQuota objects (rules 1.6 of tests/conformance).

Several objects in one namespace combine by their minimum. Use is the sum of what live pods hold, recomputed.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from allocation import quantity
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, Kind, PodRequest
from allocation.settings import AllocationSettings

_PREFIX = "limits."
REQUESTS_PREFIX: Final = "requests."
"""Before a resource that `total.requests` limits, as in a ResourceQuota of Kubernetes."""


class Burst(msgspec.Struct, frozen=True):
    """How much more than it requests a pod may use, over all its cards: MiB and millicards."""

    memory_mib: int = 0
    cores: int = 0

    def __add__(self, other: "Burst") -> "Burst":
        """Return the sum of both."""
        return Burst(self.memory_mib + other.memory_mib, self.cores + other.cores)

    def __sub__(self, other: "Burst") -> "Burst":
        """Return the difference of both."""
        return Burst(self.memory_mib - other.memory_mib, self.cores - other.cores)


NO_BURST: Final = Burst()


class Limit(msgspec.Struct, frozen=True):
    """The smallest limit of one resource for the pods of a namespace or a queue.

    Attributes:
        kind: of the object that sets it, such as `ResourceQuota`.
        name: the name of that object.
        resource: the name that users write, such as `nvidia.com/gpumem`.
        amount: how much all pods together may hold, in units of the resource.
        unit: MiB, millicards, thousandths of TFLOPs or shares per unit of the resource.
        burst: what the pod that asks may use above its request: it counts as requested, and what is left is without it.
    """

    kind: str
    name: str
    resource: str
    amount: int
    unit: int
    burst: int = 0


Limits = tuple[Limit | None, Limit | None, Limit | None, Limit | None]
"""Limits of memory, cores, cards and TFLOPs; None is unlimited."""


class Headroom(msgspec.Struct, frozen=True):
    """How much more the pods of a namespace may hold; None is unlimited.

    Attributes:
        memory_mib: MiB over all its shares.
        cores: millicards over all its shares.
        cards: shares, each of one card.
        tflops: thousandths of TFLOPs over all its shares.
        limits: the limits that this is the remainder of, for messages.
    """

    memory_mib: int | None = None
    cores: int | None = None
    cards: int | None = None
    tflops: int | None = None
    limits: Limits = (None, None, None, None)

    @property
    def left(self) -> tuple[int | None, int | None, int | None, int | None]:
        """What is left of each of the limits."""
        return self.memory_mib, self.cores, self.cards, self.tflops

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return (
            self.memory_mib is not None or self.cores is not None or self.tflops is not None or self.cards is not None
        )

    def allows(self, *, memory_mib: int, cores: int, tflops: int, cards: int) -> bool:
        """Whether these amounts are within the headroom."""
        return (
            (self.memory_mib is None or memory_mib <= self.memory_mib)
            and (self.cores is None or cores <= self.cores)
            and (self.tflops is None or tflops <= self.tflops)
            and (self.cards is None or cards <= self.cards)
        )

    def less(self, *, memory_mib: int, cores: int, tflops: int, cards: int) -> "Headroom":
        """Return the headroom that is left after these amounts are taken."""
        return Headroom(
            None if self.memory_mib is None else self.memory_mib - memory_mib,
            None if self.cores is None else self.cores - cores,
            None if self.cards is None else self.cards - cards,
            None if self.tflops is None else self.tflops - tflops,
            self.limits,
        )

    def less_burst(self, burst: Burst) -> "Headroom":
        """Return the headroom that is left to a pod that may use so much more than it requests."""
        if burst == NO_BURST or not self.is_limited:
            return self
        memory, cores, cards, tflops = self.limits
        left = self.less(memory_mib=burst.memory_mib, cores=burst.cores, tflops=0, cards=0)
        limits = (_bursting(memory, burst.memory_mib), _bursting(cores, burst.cores), cards, tflops)
        return msgspec.structs.replace(left, limits=limits)

    def within(self, other: "Headroom") -> "Headroom":
        """Return what is left of both, with the limits that are closest."""
        if not other.is_limited:
            return self
        if not self.is_limited:
            return other
        own, its = zip(self.left, self.limits, strict=True), zip(other.left, other.limits, strict=True)
        memory, cores, cards, tflops = (_closest(left, right) for left, right in zip(own, its, strict=True))
        return Headroom(memory[0], cores[0], cards[0], tflops[0], (memory[1], cores[1], cards[1], tflops[1]))

    def excess(self, request: PodRequest, *, with_use: bool = True) -> str:
        """Describe the limits that a pod's minimum request exceeds; all limits if it exceeds none.

        Each description has the object, the resource, the limit, the use as the ledger counts it unless the caller does
        not know it, and the request.
        """
        minimum = minimum_request(request)
        limited = [
            (limit, limit.amount * limit.unit - left - limit.burst, requested + limit.burst)
            for limit, left, requested in zip(
                self.limits,
                self.left,
                (minimum.memory_mib, minimum.cores, minimum.cards, minimum.tflops),
                strict=True,
            )
            if limit is not None and left is not None
        ]
        exceeded = [each for each in limited if each[1] + each[2] > each[0].amount * each[0].unit]
        more = "".join(
            f", and {part}"
            for part, is_requested in (
                ("a percentage of each card's memory", any(each.memory_percent for each in request.gpu_containers)),
                ("what its compute comes to in the other measure", _limits_other_compute(self.limits, request)),
            )
            if is_requested
        )
        return "; ".join(
            _describe(limit, used if with_use else None, requested, more="" if exceeded else more)
            for limit, used, requested in exceeded or limited
        )


UNLIMITED = Headroom()
"""The headroom of a namespace without a quota."""


def limits(hards: Mapping[str, Mapping[str, str]], settings: AllocationSettings) -> Headroom:
    """Return the headroom of an empty namespace: the smallest limit of each resource over its ResourceQuota objects.

    `hards` are the `spec.hard` of these objects, by their names. A limit that is not a whole number counts as 0: it was
    meant to limit.
    """
    return _full(*(_smallest(hards, resource, unit) for resource, unit in _resources(settings)))


def of_object(kind: str, name: str, amounts: Mapping[str, int], settings: AllocationSettings) -> Headroom:
    """Return the headroom of no use at all under the limits of a GpuQueue or a GpuQuota, by resource."""
    return _full(
        *(
            Limit(kind, name, resource, amounts[resource], unit) if resource in amounts else None
            for resource, unit in _resources(settings)
        )
    )


def of_gpu_quotas(specs: Mapping[str, QuotaSpec], settings: AllocationSettings) -> Headroom:
    """Return the headroom of an empty namespace with these GpuQuotas, by their names: the smallest of each limit."""
    headroom = UNLIMITED
    for name, spec in sorted(specs.items()):
        headroom = headroom.within(of_object("GpuQuota", name, spec.total.limits, settings))
    return headroom


def requests_of_gpu_quotas(specs: Mapping[str, QuotaSpec], settings: AllocationSettings) -> Headroom:
    """Return the same of what the pods request, whatever they may use beyond that."""
    headroom = UNLIMITED
    for name, spec in sorted(specs.items()):
        headroom = headroom.within(of_requests(name, spec.total.requests, settings))
    return headroom


def of_requests(name: str, amounts: Mapping[str, int], settings: AllocationSettings) -> Headroom:
    """Return the headroom of no use at all under `total.requests` of a GpuQuota."""
    headroom = of_object("GpuQuota", name, amounts, settings)
    memory, cores, cards, tflops = (
        limit and msgspec.structs.replace(limit, resource=f"{REQUESTS_PREFIX}{limit.resource}")
        for limit in headroom.limits
    )
    return msgspec.structs.replace(headroom, limits=(memory, cores, cards, tflops))


def _resources(settings: AllocationSettings) -> Iterator[tuple[str, int]]:
    """Iterate over the limited resources, in the order of `Limits`, with the parts that each unit has."""
    names = settings.resources
    yield names.memory, settings.memory_factor
    yield names.cores, MILLI_PER_PERCENT
    yield names.count, 1
    yield names.tflops, MILLI_PER_TFLOP


def _bursting(limit: Limit | None, burst: int) -> Limit | None:
    return None if limit is None else msgspec.structs.replace(limit, burst=burst)


def _full(memory: Limit | None, cores: Limit | None, cards: Limit | None, tflops: Limit | None) -> Headroom:
    return Headroom(_amount(memory), _amount(cores), _amount(cards), _amount(tflops), (memory, cores, cards, tflops))


def _amount(limit: Limit | None) -> int | None:
    return None if limit is None else limit.amount * limit.unit


_Left = tuple[int | None, Limit | None]
"""What is left of one resource, and its limit."""


def _closest(left: _Left, right: _Left) -> _Left:
    if right[0] is None or (left[0] is not None and left[0] <= right[0]):
        return left
    return right


def _smallest(hards: Mapping[str, Mapping[str, str]], resource: str, unit: int) -> Limit | None:
    key = _PREFIX + resource
    candidates = [
        Limit("ResourceQuota", quota, resource, _read(hard[key]), unit)
        for quota, hard in sorted(hards.items())
        if key in hard
    ]
    return min(candidates, key=lambda limit: limit.amount, default=None)


def _describe(limit: Limit, used: int | None, requested: int, *, more: str) -> str:
    """Describe a limit; `used`, None if it is unknown, and `requested` are in parts of its unit."""
    use = "" if used is None else f"{-(-used // limit.unit)} used, "
    return (
        f"{limit.kind} {limit.name} limits {limit.resource} to {limit.amount}:"
        f" {use}{-(-requested // limit.unit)} requested{more}"
    )


class MinimumRequest(msgspec.Struct, frozen=True):
    """What a pod takes of its namespace's quota at least, whichever cards it gets.

    Attributes:
        memory_mib: MiB.
        cores: millicards.
        cards: shares.
        tflops: thousandths of TFLOPs.
    """

    memory_mib: int = 0
    cores: int = 0
    cards: int = 0
    tflops: int = 0

    def __add__(self, other: "MinimumRequest") -> "MinimumRequest":
        """Return the sum of both."""
        return MinimumRequest(
            self.memory_mib + other.memory_mib,
            self.cores + other.cores,
            self.cards + other.cards,
            self.tflops + other.tflops,
        )

    def is_within(self, headroom: Headroom) -> bool:
        """Whether a headroom allows it."""
        return headroom.allows(memory_mib=self.memory_mib, cores=self.cores, tflops=self.tflops, cards=self.cards)

    def __or__(self, other: "MinimumRequest") -> "MinimumRequest":
        """Return the maximum of both in each dimension."""
        return MinimumRequest(
            max(self.memory_mib, other.memory_mib),
            max(self.cores, other.cores),
            max(self.cards, other.cards),
            max(self.tflops, other.tflops),
        )


def _limits_other_compute(limits: Limits, request: PodRequest) -> bool:
    """Whether the compute of a container is limited in the measure that it is not requested in."""
    _, cores, _, tflops = limits
    return any((tflops and each.cores) or (cores and each.tflops) for each in request.gpu_containers)


def minimum_request(request: PodRequest) -> MinimumRequest:
    """Return what is certain before any card is chosen; a percentage of memory counts as 0, as in HAMi.

    So do the TFLOPs of a percentage of compute, and the cores of TFLOPs.

    Regular and sidecar containers add up; an init container adds up only with the sidecars started before it.
    """
    steady = peak = MinimumRequest()
    for container in request.gpu_containers:
        count = container.count
        own = MinimumRequest(
            (container.memory_mib or 0) * count, container.cores * count, count, container.tflops * count
        )
        if container.kind is Kind.INIT:
            peak |= steady + own
        else:
            steady += own
    return peak | steady


def exceeds_quota(request: PodRequest, headroom: Headroom) -> str:
    """Return the limits that `request` exceeds even with the `headroom` of an empty namespace, or an empty string."""
    if not headroom.is_limited:
        return ""
    minimum = minimum_request(request)
    if minimum.is_within(headroom):
        percent = any(container.memory_percent for container in request.gpu_containers)
        if headroom.memory_mib != 0 or not percent:
            return ""
        headroom = Headroom(0, limits=(headroom.limits[0], None, None, None))  # a part of any card is more than nothing
    return f"{headroom.excess(request, with_use=False)}, which is too much even if no other pod uses any"


def unstated(request: PodRequest, limits: Limits) -> str:
    """Return which limited amount a container leaves out, so that nothing would limit it there; or an empty string.

    A container without an amount of memory or cores may use all of its card (`docs/quotas.md`).
    """
    memory, cores, _, tflops = limits
    for container in request.gpu_containers:
        compute = container.cores or container.tflops
        stated = ((memory, container.memory_mib or container.memory_percent), (cores, compute), (tflops, compute))
        for limit, amount in stated:
            if limit is not None and not amount:
                return (
                    f"{limit.kind} {limit.name} limits {limit.resource}, and container {container.name} requests none,"
                    " so nothing would limit it: request an amount"
                )
    return ""


def _read(text: str) -> int:
    try:
        return quantity.unit_capacity(text)
    except AllocationError:
        return 0
