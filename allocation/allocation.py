"""A pod's allocation: the decision that travels from the scheduler to the node, and what it charges each card."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Self

import msgspec

from allocation.inventory import Card
from allocation.isolation import Isolation
from allocation.request import MILLI_PER_PERCENT, WHOLE_CARD, Kind, PodRequest


class CardShare(msgspec.Struct, frozen=True, gc=False):
    """A container's share of one card: memory in MiB, compute in millicards; `parent` is the card of a MIG instance.

    A `whole` card belongs to no other pod, whatever the amounts, which limit the container. If any container of the pod
    requests its compute in TFLOPs, all its shares have `tflops`, in thousandths; otherwise they follow from `cores`.
    `memory_limit_mib` and `cores_limit` are the most that the container may use, if that is more; else 0.
    """

    uuid: str
    index: int
    memory_mib: int
    cores: int
    parent: str = ""
    whole: bool = False
    tflops: int = 0
    memory_limit_mib: int = 0
    cores_limit: int = 0

    @property
    def cores_percent(self) -> int:
        """The compute in percent of a card, rounded up: 1 at least for TFLOPs, because to HAMi-core 0 is unlimited."""
        return -(-self.cores // MILLI_PER_PERCENT) or (1 if self.tflops else 0)

    def up_to(self, memory_mib: int, cores: int) -> Self:
        """Return the share of a container that may use so much; no limit where that is not more than it has."""
        return msgspec.structs.replace(
            self,
            memory_limit_mib=memory_mib if memory_mib > self.memory_mib else 0,
            cores_limit=cores if cores > self.cores else 0,
        )

    def at_limits(self) -> Self:
        """Return a share of as much as the container may use, without limits above it."""
        if not self.memory_limit_mib and not self.cores_limit:
            return self
        memory, cores = max(self.memory_mib, self.memory_limit_mib), max(self.cores, self.cores_limit)
        return msgspec.structs.replace(self, memory_mib=memory, cores=cores, memory_limit_mib=0, cores_limit=0)


Exclusivity = Literal["Exclusive", "Shared", "MIG"]
"""How a GpuClaim has its cards: alone, together with other pods, or as MIG instances."""


class ClaimMark(msgspec.Struct, frozen=True):
    """The GpuClaim that an allocation is for: its name, and how its pod has the cards."""

    name: str
    exclusivity: Exclusivity

    @property
    def is_leased(self) -> bool:
        """Whether a Lease says for each card which pod has it."""
        return self.exclusivity != "Shared"


class Allocation(msgspec.Struct, frozen=True):
    """The cards of each GPU container of a pod, in the order in which the container sees them.

    For a `claim`, all containers have the same shares of the same cards. `isolation` is what enforces their limits.
    """

    node: str
    containers: Mapping[str, tuple[CardShare, ...]]
    claim: ClaimMark | None = None
    isolation: Isolation = Isolation.NONE

    @property
    def has_tflops(self) -> bool:
        """Whether its pod requests compute in TFLOPs."""
        return any(share.tflops for shares in self.containers.values() for share in shares)

    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of the pod's cards on its node, each once, in the order of its containers."""
        return tuple(dict.fromkeys(share.index for shares in self.containers.values() for share in shares))

    @property
    def is_bursting(self) -> bool:
        """Whether any container may use more than is reserved for it."""
        for shares in self.containers.values():
            for share in shares:
                if share.memory_limit_mib or share.cores_limit:
                    return True
        return False

    def at_limits(self) -> Self:
        """Return an allocation of as much as the containers may use."""
        if not self.is_bursting:
            return self
        containers = {name: tuple(share.at_limits() for share in shares) for name, shares in self.containers.items()}
        return msgspec.structs.replace(self, containers=containers)


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What a pod holds of one card for as long as it lives: memory in MiB, compute in millicards, slots.

    `parent` is the card of a MIG instance, which is charged the same. A `whole` card is charged with all that it has,
    whatever the amounts, and must be idle. `tflops`, in thousandths, are those of a pod that requests any; 0 charges
    what `cores` are of the TFLOPs of the card. `isolation` is that of the pod, or a word of the program with this
    ledger. `burst_memory_mib` and `burst_cores` are what its containers may use beyond the amounts: no card is charged
    with it, but it counts for the limits of a namespace.
    """

    uuid: str
    memory_mib: int
    cores: int
    slots: int
    parent: str = ""
    whole: bool = False
    tflops: int = 0
    isolation: str = Isolation.NONE
    burst_memory_mib: int = 0
    burst_cores: int = 0

    def part_of(self, card: Card) -> float:
        """Return how much of a whole card the pod holds: the larger of its parts of the memory and the compute.

        Of a MIG instance that is the part of the card's compute that the instance has, as its profile states it.
        """
        if card.instance is not None:
            return card.cores / WHOLE_CARD
        if self.whole:
            return 1.0
        memory = self.memory_mib / card.memory_mib if card.memory_mib else 0.0
        return min(1.0, max(memory, self.cores / card.cores if card.cores else 0.0))


Cost = tuple[int, int, int, int]
"""Memory, cores, slots, thousandths of TFLOPs."""
_NO_COST: Final[Cost] = (0, 0, 0, 0)


def charges(allocation: Allocation, request: PodRequest) -> tuple[Charge, ...]:
    """Return what `allocation` charges each card while the pod lives.

    Per card and dimension, that is the larger of the sum over regular and sidecar containers and the largest init step,
    which is an init container plus the sidecars started before it. A charge does not shrink when init containers end,
    because a recreated sandbox runs them again. A container that `request` does not contain counts as regular.

    The containers of a claim share its cards, so each card is charged once.
    """
    if allocation.is_bursting:
        return _with_bursts(allocation, request)
    if allocation.claim is not None:
        return _charges_of_claim(allocation, allocation.claim)
    whole = any(container.whole for container in request.containers)
    if len(allocation.containers) == 1:
        (shares,) = allocation.containers.values()
        if len(shares) == 1 or len({share.uuid for share in shares}) == len(shares):  # as in most: nothing to add up
            return _charges_of_shares(shares, whole=whole, isolation=allocation.isolation)
    steady: dict[str, Cost] = {}
    peak: dict[str, Cost] = {}
    unknown = dict(allocation.containers)
    for container in request.containers:
        shares = unknown.pop(container.name, ())
        if container.kind is Kind.INIT:
            step = dict(steady)
            _add(step, shares)
            _raise_to(peak, step)
        else:
            _add(steady, shares)
    for shares in unknown.values():
        _add(steady, shares)
    _raise_to(peak, steady)
    every = {share.uuid: share for shares in allocation.containers.values() for share in shares}
    return tuple(
        Charge(uuid, memory, cores, slots, every[uuid].parent, whole or every[uuid].whole, tflops, allocation.isolation)
        for uuid, (memory, cores, slots, tflops) in sorted(peak.items())
    )


def _with_bursts(allocation: Allocation, request: PodRequest) -> tuple[Charge, ...]:
    """Return the charges of what is reserved, with how much more would be charged at the limits."""
    reserved = {
        name: tuple(msgspec.structs.replace(share, memory_limit_mib=0, cores_limit=0) for share in shares)
        for name, shares in allocation.containers.items()
    }
    own = charges(msgspec.structs.replace(allocation, containers=reserved), request)
    return tuple(
        msgspec.structs.replace(
            each, burst_memory_mib=most.memory_mib - each.memory_mib, burst_cores=most.cores - each.cores
        )
        for each, most in zip(own, charges(allocation.at_limits(), request), strict=True)
    )


def _charges_of_claim(allocation: Allocation, claim: ClaimMark) -> tuple[Charge, ...]:
    shares = next(iter(allocation.containers.values()), ())
    return _charges_of_shares(shares, whole=claim.exclusivity == "Exclusive", isolation=allocation.isolation)


def _charges_of_shares(shares: Sequence[CardShare], *, whole: bool, isolation: Isolation) -> tuple[Charge, ...]:
    return tuple(
        Charge(
            share.uuid, share.memory_mib, share.cores, 1, share.parent, whole or share.whole, share.tflops, isolation
        )
        for share in (shares if len(shares) == 1 else sorted(shares, key=lambda share: share.uuid))
    )


def _add(costs: dict[str, Cost], shares: Iterable[CardShare]) -> None:
    for share in shares:
        memory, cores, slots, tflops = costs.get(share.uuid, _NO_COST)
        costs[share.uuid] = (memory + share.memory_mib, cores + share.cores, slots + 1, tflops + share.tflops)


def _raise_to(peak: dict[str, Cost], step: Mapping[str, Cost]) -> None:
    for uuid, (memory, cores, slots, tflops) in step.items():
        most = peak.get(uuid, _NO_COST)
        peak[uuid] = (max(most[0], memory), max(most[1], cores), max(most[2], slots), max(most[3], tflops))
