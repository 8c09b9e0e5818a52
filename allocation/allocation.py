"""A pod's allocation: the decision that travels from the scheduler to the node, and what it charges each card."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from allocation.request import Kind, PodRequest


class CardShare(msgspec.Struct, frozen=True, gc=False):
    """A container's share of one card: memory in MiB, compute in millicards; `parent` is the card of a MIG instance.

    A `whole` card belongs to no other pod, whatever the amounts, which limit the container.
    """

    uuid: str
    index: int
    memory_mib: int
    cores: int
    parent: str = ""
    whole: bool = False


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

    For a `claim`, all containers have the same shares of the same cards.
    """

    node: str
    containers: Mapping[str, tuple[CardShare, ...]]
    claim: ClaimMark | None = None

    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of the pod's cards on its node, each once, in the order of its containers."""
        return tuple(dict.fromkeys(share.index for shares in self.containers.values() for share in shares))


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What a pod holds of one card for as long as it lives: memory in MiB, compute in millicards, slots.

    `parent` is the card of a MIG instance, which is charged the same. A `whole` card is charged with all that it has,
    whatever the amounts, and must be idle.
    """

    uuid: str
    memory_mib: int
    cores: int
    slots: int
    parent: str = ""
    whole: bool = False


Cost = tuple[int, int, int]
"""Memory, cores, slots."""


def charges(allocation: Allocation, request: PodRequest) -> tuple[Charge, ...]:
    """Return what `allocation` charges each card while the pod lives.

    Per card and dimension, that is the larger of the sum over regular and sidecar containers and the largest init step,
    which is an init container plus the sidecars started before it. A charge does not shrink when init containers end,
    because a recreated sandbox runs them again. A container that `request` does not contain counts as regular.

    The containers of a claim share its cards, so each card is charged once.
    """
    if allocation.claim is not None:
        return _charges_of_claim(allocation, allocation.claim)
    whole = any(container.whole for container in request.containers)
    if len(allocation.containers) == 1:
        (shares,) = allocation.containers.values()
        if len({share.uuid for share in shares}) == len(shares):  # as in most pods: nothing to add up
            return _charges_of_shares(shares, whole=whole)
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
    return tuple(Charge(uuid, *peak[uuid], every[uuid].parent, whole or every[uuid].whole) for uuid in sorted(peak))


def _charges_of_claim(allocation: Allocation, claim: ClaimMark) -> tuple[Charge, ...]:
    shares = next(iter(allocation.containers.values()), ())
    return _charges_of_shares(shares, whole=claim.exclusivity == "Exclusive")


def _charges_of_shares(shares: Iterable[CardShare], *, whole: bool) -> tuple[Charge, ...]:
    return tuple(
        Charge(share.uuid, share.memory_mib, share.cores, 1, share.parent, whole or share.whole)
        for share in sorted(shares, key=lambda share: share.uuid)
    )


def _add(costs: dict[str, Cost], shares: Iterable[CardShare]) -> None:
    for share in shares:
        memory, cores, slots = costs.get(share.uuid, (0, 0, 0))
        costs[share.uuid] = (memory + share.memory_mib, cores + share.cores, slots + 1)


def _raise_to(peak: dict[str, Cost], step: Mapping[str, Cost]) -> None:
    for uuid, (memory, cores, slots) in step.items():
        highest = peak.get(uuid, (0, 0, 0))
        peak[uuid] = (max(highest[0], memory), max(highest[1], cores), max(highest[2], slots))
