"""The Leases of cards as the API server shows them, and the cards that they close.

A Lease closes its card unless the pod that holds the Lease also holds the card: such a Lease is left over from an
earlier term, or its pod has ended. The card stays closed until the deletion of the Lease is seen. In the ledger a
closed card is held whole by a reservation of its own.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator

from allocation.allocation import Charge
from allocation.ledger.ledger import LEASE_PREFIX, Ledger
from scheduler.leases.device_lease import DeviceLease, LeasedPod


class DeviceLeases:
    """The Leases by name, and the running pods that must hold one for each of their cards.

    Attributes:
        changed: set when a Lease becomes unwanted.
    """

    def __init__(self, *, ledger: Ledger, on_open: Callable[[], object]) -> None:
        """Close cards in `ledger`; `on_open` is called when new pods may use a closed card again."""
        self._ledger = ledger
        self._on_open = on_open
        self._leases: dict[str, DeviceLease] = {}
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        """The names of the Leases of each holder."""
        self._occupied: dict[str, tuple[str, str]] = {}
        """The node and card for which a Lease was refused because another pod has one with this name."""
        self._unwanted: set[str] = set()
        self._pods: dict[str, LeasedPod] = {}
        self.changed = asyncio.Event()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def set_lease(self, lease: DeviceLease) -> None:
        """Set the state of a Lease."""
        old = self._leases.get(lease.name)
        if old is not None:
            self._discard_name(old)
        self._leases[lease.name] = lease
        self._names[lease.holder].add(lease.name)
        self._refresh(lease.name)

    def drop_lease(self, name: str, uid: str) -> None:
        """Forget a deleted Lease, unless another one has its name already."""
        old = self._leases.get(name)
        if old is not None and old.uid != uid:
            return
        self._occupied.pop(name, None)
        if old is not None:
            self._discard_name(old)
            del self._leases[name]
        self._refresh(name)

    def close(self, name: str, *, node: str, card: str) -> None:
        """Close a card of `node` until the Lease that has the name of this card's Lease is deleted.

        The Lease may be that of another card: NVML's indexes change when a card falls off the bus.
        """
        self._occupied[name] = (node, card)
        self._refresh(name)

    def set_pod(self, pod: LeasedPod) -> None:
        """Record a running pod, if it must hold Leases."""
        claim = pod.allocation.claim
        if claim is not None and claim.is_leased:
            self._pods[pod.uid] = pod

    def drop_pod(self, uid: str) -> None:
        """Forget a pod that has ended."""
        self._pods.pop(uid, None)

    def refresh(self, uid: str) -> None:
        """Close or open the cards of a pod's Leases, after a change of what the pod holds in the ledger."""
        for name in self._names.get(uid, ()):
            self._refresh(name)

    # ---- queries ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of Leases."""
        return len(self._leases)

    def __iter__(self) -> Iterator[DeviceLease]:
        """Iterate over the Leases."""
        return iter(tuple(self._leases.values()))

    def get(self, name: str) -> DeviceLease | None:
        """Return a Lease."""
        return self._leases.get(name)

    def is_wanted(self, lease: DeviceLease) -> bool:
        """Whether the pod that holds a Lease holds the card of the Lease, too."""
        reservation = self._ledger.reservation(lease.holder)
        return (
            reservation is not None
            and reservation.node == lease.node
            and any(charge.uuid == lease.card for charge in reservation.charges)
        )

    def unwanted(self) -> list[DeviceLease]:
        """Return the Leases whose holders do not hold their cards."""
        return [self._leases[name] for name in self._unwanted]

    def pods(self) -> list[LeasedPod]:
        """Return the running pods that must hold Leases."""
        return list(self._pods.values())

    def missing(self, pod: LeasedPod) -> set[str]:
        """Return the cards of a pod for which it holds no Lease."""
        leases = (self._leases[name] for name in self._names.get(pod.uid, ()))
        return pod.cards.keys() - {lease.card for lease in leases if lease.node == pod.allocation.node}

    # ---- the ledger ------------------------------------------------------------------------------------------------

    def _discard_name(self, lease: DeviceLease) -> None:
        names = self._names[lease.holder]
        names.discard(lease.name)
        if not names:
            del self._names[lease.holder]

    def matches(self, name: str) -> bool:
        """Whether the ledger has exactly those cards closed that the Lease of this name closes, if it exists."""
        node, cards = self._closed(name)
        reservation = self._ledger.reservation(LEASE_PREFIX + name)
        if reservation is None:
            return not cards
        return reservation.node == node and {charge.uuid for charge in reservation.charges} == cards

    def _closed(self, name: str) -> tuple[str, set[str]]:
        """Return the node and the cards that are closed by the Lease of a name."""
        lease, occupied = self._leases.get(name), self._occupied.get(name)
        node, cards = occupied[0] if occupied is not None else "", {occupied[1]} if occupied is not None else set()
        if lease is not None and not self.is_wanted(lease):
            node = node or lease.node
            cards.add(lease.card)
        return node, cards

    def _refresh(self, name: str) -> None:
        """Close the card of a Lease, or open it."""
        lease = self._leases.get(name)
        if lease is None or self.is_wanted(lease):
            self._unwanted.discard(name)
        elif name not in self._unwanted:
            self._unwanted.add(name)
            self.changed.set()
        node, cards = self._closed(name)
        uid = LEASE_PREFIX + name
        before = self._ledger.reservation(uid)
        if cards:
            charges = (Charge(card, 0, 0, 0, whole=True) for card in sorted(cards))
            self._ledger.record(uid, node, charges)
        else:
            self._ledger.release(uid)
        if before is not None and any(charge.uuid not in cards for charge in before.charges):
            self._on_open()
