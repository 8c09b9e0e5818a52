"""Cards that are held for pods while others still use them: no other pod takes what is freed.

They are held for pods that have waited too long, without evictions, and for pods for which others are preempted or
moved: these holds are nominations. A hold is a reservation in the ledger for the share that its pod will have. While
others still use the cards, these are used beyond their capacity, so they fit no other pod. Only pods of a higher rank
may take them. The queue of the pod is charged for them as if the pod had them already. The pods of a gang have holds
together: what is held for one of them is taken from the quotas of the others, too, because it is of use only to all.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, Literal

import msgspec

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.ledger.ledger import Ledger
from scheduler.fairness.fair_share import PodRank
from scheduler.fairness.use import Use, UseByOwner
from scheduler.filters.node_cache import NodeCache
from scheduler.gangs.gang import GangKey
from scheduler.objects import Pod, PodMeta
from scheduler.pod_spec.spec import PodSpec

PREFIX: Final = "hold:"
"""Begins the UIDs of reservations of holds."""


HoldCause = Literal["patience", "preemption", "consolidation"]
"""The pod has waited too long, preempts others, or others are moved for it; or it has been moved itself."""


class Hold(msgspec.Struct, frozen=True):
    """The share that is held for a pod.

    Attributes:
        uid: the pod.
        key: its queue.
        rank: its rank.
        node: the node of the cards.
        charges: the share of each card.
        awaited: the UIDs of the pods that have to end first.
        cause: why they are held.
        deadline: when it ends in any case, on the clock of the state; None if another part of the scheduler ends it.
        gang: the gang that the pod gets a node with; None for a pod that gets one alone.
    """

    uid: str
    key: QueueKey
    rank: PodRank
    node: str
    charges: tuple[Charge, ...]
    awaited: frozenset[str]
    cause: HoldCause = "patience"
    deadline: float | None = None
    gang: GangKey | None = None

    @property
    def unit(self) -> GangKey | str:
        """What it counts for: the gang, or else the pod."""
        return self.gang or self.uid

    @property
    def reservation(self) -> str:
        """The UID of the reservation in the ledger, and of what stands for the pod on its node."""
        return f"{PREFIX}{self.uid}"

    @property
    def is_nomination(self) -> bool:
        """Whether pods are evicted for it."""
        return self.cause != "patience"

    def frees(self, node: str, charges: Iterable[Charge]) -> bool:
        """Whether anything is free that it held once a pod has taken these shares of the cards of a node."""
        taken = {each.uuid: each for each in charges} if node == self.node else {}
        return any(
            (its := taken.get(held.uuid)) is None
            or held.memory_mib > its.memory_mib
            or held.cores > its.cores
            or held.whole > its.whole
            for held in self.charges
        )


class Holds:
    """The holds by pod."""

    def __init__(self, ledger: Ledger, node_cache: NodeCache, charged: UseByOwner[QueueKey]) -> None:
        """Keep others from the cards in `ledger`, and from the CPU, memory and ports in `node_cache`.

        What is held counts for its queue in `charged`.
        """
        self._ledger = ledger
        self._node_cache = node_cache
        self._charged = charged
        self._of_gangs: UseByOwner[GangKey] = UseByOwner(ledger)
        """The holds with cards."""
        self._holds: dict[str, Hold] = {}
        self._pods: dict[str, Pod] = {}

    def __len__(self) -> int:
        """Return the number of holds."""
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        """Iterate over the holds."""
        return iter(tuple(self._holds.values()))

    @property
    def nominations(self) -> tuple[Hold, ...]:
        """The holds for which pods are evicted."""
        return tuple(hold for hold in self if hold.is_nomination)

    def pairs(self) -> tuple[tuple[Hold, Pod], ...]:
        """Return the holds with their pods, as these were when the holds were made."""
        return tuple((hold, self._pods[hold.uid]) for hold in self)

    @property
    def patient_units(self) -> frozenset[GangKey | str]:
        """The gangs and pods for which cards are held because they have waited too long."""
        return frozenset(hold.unit for hold in self if not hold.is_nomination)

    def of(self, uid: str) -> Hold | None:
        """Return the hold for a pod."""
        return self._holds.get(uid)

    def of_others(self, gang: GangKey, uid: str) -> Use:
        """Return the cards that are held for the pods of a gang other than the one with this UID."""
        own, use = f"{PREFIX}{uid}", self._of_gangs.of(gang)
        if self._of_gangs.owner(own) != gang:
            return use
        less = self._of_gangs.of(gang, without=(own,))
        return msgspec.structs.replace(less, pods=less.pods - 1)

    def add(self, hold: Hold, pod: Pod) -> None:
        """Hold cards for a pod, and what else it requests of their node, instead of what was held for it before."""
        self.release(hold.uid)
        self._holds[hold.uid] = hold
        self._pods[hold.uid] = pod
        self._ledger.record(hold.reservation, hold.node, hold.charges)
        self._node_cache.add_pod(_counted_pod(pod, hold.reservation), hold.node, assumed=True)
        self._charged.add_pod(hold.reservation, hold.key)
        if hold.gang is not None and hold.charges:
            self._of_gangs.add_pod(hold.reservation, hold.gang)

    def release(self, uid: str) -> Hold | None:
        """Hold nothing for a pod any more; return what was held."""
        hold = self._holds.pop(uid, None)
        if hold is None:
            return None
        del self._pods[uid]
        self._charged.remove_pod(hold.reservation)
        self._of_gangs.remove_pod(hold.reservation)
        self._ledger.release(hold.reservation)
        self._node_cache.remove_pod(hold.reservation)
        return hold

    def release_taken(self, reservations: Container[str], node: str, charges: Iterable[Charge]) -> list[Hold]:
        """Release those holds among some reservations, given by UID, of whose cards another pod takes a share.

        A MIG instance is a share of its card, and a whole card takes all of its instances. If the node may have no
        more pods after that, a hold of the lowest rank there is released for its place. Return what was held.
        """
        own = tuple(charges)
        taken = {charge.uuid for charge in own}
        touched = taken | {charge.parent for charge in own}
        on_node = [hold for hold in self if hold.reservation in reservations and hold.node == node]
        released = [
            hold for hold in on_node if any(charge.uuid in touched or charge.parent in taken for charge in hold.charges)
        ]
        for hold in released:
            self.release(hold.uid)
        row = self._ledger.row(node)
        for hold in sorted(
            (each for each in on_node if each not in released), key=lambda each: each.rank, reverse=True
        ):
            if row is None or not self._ledger.is_full(row):
                break
            self.release(hold.uid)
            released.append(hold)
        return released

    def reserved_for(self, uid: str) -> frozenset[str]:
        """Return the UID of the reservation of the hold for a pod, if there is one."""
        hold = self.of(uid)
        return frozenset() if hold is None else frozenset({hold.reservation})

    def lower_than(self, rank: PodRank, *, gang: GangKey | None = None) -> frozenset[str]:
        """Return the UIDs of the reservations of the holds for pods of lower rank, those of a `gang` left out."""
        return frozenset(hold.reservation for hold in self if hold.rank > rank and (gang is None or hold.gang != gang))


def _counted_pod(pod: Pod, uid: str) -> Pod:
    """Return a pod that requests the same of its node, and has no labels that others could select."""
    meta = PodMeta(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=uid)
    spec = PodSpec(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        overhead=pod.spec.overhead,
        resources=pod.spec.resources,
    )
    return Pod(meta, spec)
