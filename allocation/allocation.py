"""What a pod was given: the decision that travels from the scheduler to the node, and what it costs each card."""

from collections.abc import Iterable, Mapping

import msgspec

from allocation.request import Kind, PodRequest


class CardShare(msgspec.Struct, frozen=True, gc=False):
    """What one container has of one card: memory in MiB, compute in millicards; `parent` is a MIG instance's card."""

    uuid: str
    index: int
    memory_mib: int
    cores: int
    parent: str = ""


class Allocation(msgspec.Struct, frozen=True):
    """The cards of each GPU container of a pod, in the order in which the container sees them."""

    node: str
    containers: Mapping[str, tuple[CardShare, ...]]


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What a pod costs one card for as long as it lives: memory in MiB, compute in millicards, slots.

    `parent` is the card of a MIG instance: it shows the same use.
    """

    uuid: str
    memory_mib: int
    cores: int
    slots: int
    parent: str = ""


Cost = tuple[int, int, int]
"""Memory, cores, slots."""


def charges(allocation: Allocation, request: PodRequest) -> tuple[Charge, ...]:
    """Answer what `allocation` costs each card while the pod lives.

    Per card and dimension: the larger of what regular and sidecar containers hold together and of the largest init
    step, which is an init container plus the sidecars started before it. It does not shrink when init containers
    end, because a recreated sandbox runs them again. A container that `request` does not know counts as regular.
    """
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
    parents = {share.uuid: share.parent for shares in allocation.containers.values() for share in shares}
    return tuple(Charge(uuid, *peak[uuid], parents[uuid]) for uuid in sorted(peak))


def _add(costs: dict[str, Cost], shares: Iterable[CardShare]) -> None:
    for share in shares:
        memory, cores, slots = costs.get(share.uuid, (0, 0, 0))
        costs[share.uuid] = (memory + share.memory_mib, cores + share.cores, slots + 1)


def _raise_to(peak: dict[str, Cost], step: Mapping[str, Cost]) -> None:
    for uuid, (memory, cores, slots) in step.items():
        held = peak.get(uuid, (0, 0, 0))
        peak[uuid] = (max(held[0], memory), max(held[1], cores), max(held[2], slots))
