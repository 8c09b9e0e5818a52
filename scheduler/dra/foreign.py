"""The devices that other DRA drivers' claims have on our nodes.

A device that is one of our cards is held whole in the ledger, by a reservation of its own, as long as a claim has it. A
device that cannot be counted, because it is not one of our cards or only a part of one, closes its node.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.ledger.ledger import DRA_PREFIX, Ledger
from allocation.reasons import NodeReason, NodeRejection
from cluster.dra import AllocatedDevice, ResourceClaim, ResourceSlice
from scheduler.filters.node_rejections import NodeRejections

STATES: Final = ("counted", "double_booked", "unknown")
"""What the ledger makes of an allocated device."""

_ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""
_DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""


class _Location(msgspec.Struct, frozen=True, gc=False):
    """Where a device is, by the latest generation of its pool; the UUID is empty if no slice says it."""

    generation: int
    node: str
    uuid: str


class DoubleBooking(msgspec.Struct, frozen=True):
    """A card that a claim and pods of ours have.

    Attributes:
        namespace: the namespace of the claim.
        claim: the name of the claim.
        node: the node of the card.
        card: the UUID of the card.
        pods: the UIDs of the pods.
    """

    namespace: str
    claim: str
    node: str
    card: str
    pods: tuple[str, ...]


class ForeignDevices:
    """The slices and claims of the drivers, and what follows from them.

    Attributes:
        rejections: the rejections by nodes with a device that cannot be counted.
    """

    def __init__(
        self,
        drivers: Iterable[str],
        *,
        ledger: Ledger,
        on_release: Callable[[], object],
        on_double_booked: Callable[[DoubleBooking], object],
    ) -> None:
        """Hold cards in `ledger` for the claims of `drivers`.

        `on_release` is called when new pods may use a card again, `on_double_booked` for each card that pods have when
        a claim gets it.
        """
        self._drivers = frozenset(drivers)
        self._ledger = ledger
        self._on_release = on_release
        self._on_double_booked = on_double_booked
        self._locations: defaultdict[_DeviceKey, dict[str, _Location]] = defaultdict(dict)
        """By device and name of the slice: two generations of a pool may overlap."""
        self._claims: dict[_ClaimKey, tuple[AllocatedDevice, ...]] = {}
        self._users: defaultdict[_DeviceKey, set[_ClaimKey]] = defaultdict(set)
        self._located: dict[_ClaimKey, tuple[_Location, ...]] = {}
        self._on_node: defaultdict[str, set[_ClaimKey]] = defaultdict(set)
        self.rejections = NodeRejections()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def set_slice(self, slice_: ResourceSlice, old: ResourceSlice | None = None) -> None:
        """Set the state of a slice."""
        changed = self._remove(old) if old is not None else set()
        if slice_.spec.driver in self._drivers:
            spec = slice_.spec
            for device in spec.devices:
                key = (spec.driver, spec.pool.name, device.name)
                location = _Location(spec.pool.generation, spec.node_name or spec.pool.name, device.uuid)
                self._locations[key][slice_.metadata.name] = location
                changed.add(key)
        self._refresh_users(changed)

    def drop_slice(self, slice_: ResourceSlice) -> None:
        """Forget a slice; claims keep its devices, which cannot be counted any more."""
        self._refresh_users(self._remove(slice_))

    def set_claim(self, claim: ResourceClaim, _old: ResourceClaim | None = None) -> None:
        """Set the devices of a claim."""
        self._set(_key(claim), tuple(each for each in claim.devices if each.driver in self._drivers))

    def drop_claim(self, claim: ResourceClaim) -> None:
        """Forget a claim."""
        self._set(_key(claim), ())

    def refresh_node(self, node: str) -> None:
        """Close a node or open it, after a change of its cards or of the devices that claims have there."""
        rejection = None
        if self._ledger.row(node) is not None:
            unknown = min((key for key in self._on_node.get(node, ()) if self._has_unknown(key, node)), default=None)
            if unknown is not None:
                namespace, name = unknown
                rejection = NodeRejection(
                    NodeReason.ForeignDraDriver,
                    f"ResourceClaim {namespace}/{name} has a device on node {node} that is not a whole card of the"
                    " node's report, so its cards cannot be counted: delete the claim, and keep the DRA driver off the"
                    " node, or remove the label gpu from the node",
                    resolvable=False,
                )
        self.rejections.set(node, rejection)

    # ---- queries ---------------------------------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        """Return the number of allocated devices on nodes with cards, by what the ledger makes of them (STATES)."""
        counts: Counter[str] = Counter()
        for located in self._located.values():
            for each in located:
                if self._ledger.row(each.node) is not None:
                    counts[self._state(each)] += 1
        return counts

    def _state(self, location: _Location) -> str:
        if not self._is_card(location):
            return "unknown"
        return "double_booked" if self._pods_on(location) else "counted"

    # ---- claims and slices -----------------------------------------------------------------------------------------

    def _remove(self, slice_: ResourceSlice) -> set[_DeviceKey]:
        """Forget the devices of a slice and return them."""
        spec, keys = slice_.spec, set[_DeviceKey]()
        if spec.driver not in self._drivers:
            return keys
        for device in spec.devices:
            key = (spec.driver, spec.pool.name, device.name)
            keys.add(key)
            slices = self._locations.get(key, {})
            slices.pop(slice_.metadata.name, None)
            if not slices:
                self._locations.pop(key, None)
        return keys

    def _refresh_users(self, devices: Iterable[_DeviceKey]) -> None:
        for claim in sorted({claim for key in devices for claim in self._users.get(key, ())}):
            self._refresh(claim)

    def _set(self, claim: _ClaimKey, devices: tuple[AllocatedDevice, ...]) -> None:
        before = self._claims.get(claim, ())
        if devices == before:
            return
        for each in before:
            users = self._users[_device_key(each)]
            users.discard(claim)
            if not users:
                del self._users[_device_key(each)]
        for each in devices:
            self._users[_device_key(each)].add(claim)
        if devices:
            self._claims[claim] = devices
        else:
            self._claims.pop(claim, None)
        self._refresh(claim)

    def _refresh(self, claim: _ClaimKey) -> None:
        """Find out where the devices of a claim are, and hold these cards."""
        before = self._located.pop(claim, ())
        located = tuple(map(self._locate, self._claims.get(claim, ())))
        if located:
            self._located[claim] = located
        for each in before:
            self._on_node[each.node].discard(claim)
            if not self._on_node[each.node]:
                del self._on_node[each.node]
        for each in located:
            self._on_node[each.node].add(claim)
        self._hold(claim, located)
        for node in {each.node for each in (*before, *located)}:
            self.refresh_node(node)

    def _locate(self, device: AllocatedDevice) -> _Location:
        """Return where a device is; without a slice its node has the name of its pool, as usual."""
        locations = self._locations.get(_device_key(device))
        if not locations:
            return _Location(0, device.pool, "")
        return max(locations.values(), key=lambda each: each.generation)

    # ---- the ledger ------------------------------------------------------------------------------------------------

    def _hold(self, claim: _ClaimKey, located: tuple[_Location, ...]) -> None:
        """Hold the cards of a claim, all on the node of the first: a claim has devices of one node."""
        uid = DRA_PREFIX + "/".join(claim)
        before = self._ledger.reservation(uid)
        cards = [each for each in located if each.uuid and each.node == located[0].node]
        if cards:
            uuids = sorted({each.uuid for each in cards})
            self._ledger.record(uid, cards[0].node, (Charge(uuid, 0, 0, 0, whole=True) for uuid in uuids))
        else:
            self._ledger.release(uid)
        held_before = {charge.uuid for charge in before.charges} if before is not None else set()
        for each in cards:
            if each.uuid not in held_before and (pods := self._pods_on(each)):
                self._on_double_booked(DoubleBooking(*claim, each.node, each.uuid, pods))
        if held_before - {each.uuid for each in cards}:
            self._on_release()

    def _pods_on(self, location: _Location) -> tuple[str, ...]:
        """Return the UIDs of the pods that have a card, or a part of it."""
        return tuple(
            each.uid
            for each in self._ledger.reservations(location.node)
            if each.is_pod and any(location.uuid in (charge.uuid, charge.parent) for charge in each.charges)
        )

    def _has_unknown(self, claim: _ClaimKey, node: str) -> bool:
        """Whether a claim has a device on a node that is not held, because it is not a card of the node."""
        located = self._located.get(claim, ())
        return any(each.node == node and (node != located[0].node or not self._is_card(each)) for each in located)

    def _is_card(self, location: _Location) -> bool:
        """Whether a device is a whole card that the report of its node has."""
        position, inventory = self._ledger.position(location.uuid), self._ledger.inventory(location.node)
        if position is None or inventory is None or self._ledger.node(position[0]) != location.node:
            return False
        return inventory.cards[position[1]].instance is None


def _key(claim: ResourceClaim) -> _ClaimKey:
    return claim.metadata.namespace, claim.metadata.name


def _device_key(device: AllocatedDevice) -> _DeviceKey:
    return device.driver, device.pool, device.device
