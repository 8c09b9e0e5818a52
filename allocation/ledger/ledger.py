"""The ledger: the capacity and use of every card, as columns.

The source of truth is the inventories plus the allocations of live pods. The ledger is their sum, updated
incrementally and equal to a recount at any time. Check and reservation are one synchronous step: `assume` refuses what
does not fit, so no order of calls can put a card over its capacity by an assumption.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import MOST_UNDIVIDED, NodeInventory
from allocation.ledger.card_table import (
    DIMENSIONS,
    MIG_ENABLED,
    PLUGIN_MANAGED,
    SHARED,
    TFLOPS,
    Amounts,
)
from allocation.ledger.sharing_table import SharingTable
from allocation.sharing import NO_RULES, SharingRules

LEASE_PREFIX: Final = "lease:"
"""Prefix of the UIDs of reservations by which a Lease closes cards, and no pod uses them."""
DRA_PREFIX: Final = "dra:"
"""Prefix of the UIDs of reservations for the claims of other DRA drivers."""
INSTANCE_PREFIX: Final = "mig:"
"""Prefix of the UIDs of reservations that keep a MIG instance for the pod for which it was created."""


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one pod holds.

    Attributes:
        uid: the pod's UID.
        node: the pod's node.
        charges: per card.
        assumed: whether a decision reserved it whose Binding the API server has not shown yet.
        tflops: thousandths of TFLOPs over all its cards, by the models that its node had last.
        states_tflops: whether the pod requests them, and they do not only follow from its cores.
    """

    uid: str
    node: str
    charges: tuple[Charge, ...]
    assumed: bool
    tflops: int = 0
    states_tflops: bool = False

    @property
    def is_pod(self) -> bool:
        """Whether a pod has the cards; otherwise they are only kept from others. The UID of a pod has no colon."""
        return ":" not in self.uid

    @property
    def takes_place(self) -> bool:
        """Whether it is one of the most pods that a node may have: that of a pod, or a hold for one that is to come."""
        return bool(self.charges) and not self.uid.startswith((LEASE_PREFIX, DRA_PREFIX, INSTANCE_PREFIX))


class Ledger(SharingTable):
    """The cards of all nodes and what pods hold of them."""

    def __init__(self, rules: SharingRules = NO_RULES, *, rows: int = 16, cards: int = 8) -> None:
        super().__init__(rules, rows=rows, cards=cards)
        self._followers: list[Callable[[Reservation, int], None]] = []
        self._inventories: dict[str, NodeInventory] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._reservations: dict[str, Reservation] = {}
        self._by_node: dict[str, dict[str, Reservation]] = {}
        self._cordons: dict[str, frozenset[str]] = {}
        self._mig_nodes: set[str] = set()
        self.tflops_holders = 0

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def inventory(self, node: str) -> NodeInventory | None:
        """Return the last report of `node`'s agent."""
        return self._inventories.get(node)

    @property
    def mig_nodes(self) -> frozenset[str]:
        """The nodes that have cards in MIG mode or MIG instances."""
        return frozenset(self._mig_nodes)

    def set_node(self, inventory: NodeInventory) -> None:
        """Replace the cards of a node by its report, and recount what pods hold there.

        Raises:
            AllocationError: another node has reported one of the cards, or the report has a card twice, or too many.
        """
        if inventory == self._inventories.get(inventory.node):
            return
        if sum(card.is_undivided for card in inventory.cards) > MOST_UNDIVIDED:
            raise AllocationError(f"node {inventory.node} reports more than {MOST_UNDIVIDED} cards, which is the limit")
        seen: set[str] = set()
        for card in inventory.cards:
            elsewhere = self._positions.get(card.uuid)
            if card.uuid in seen or (elsewhere is not None and self.node(elsewhere[0]) != inventory.node):
                owner = inventory.node if elsewhere is None else self.node(elsewhere[0])
                raise AllocationError(
                    f"node {inventory.node} reports card {card.uuid}, which node {owner} has already reported"
                )
            seen.add(card.uuid)
        row = self._rows.get(inventory.node)
        if row is None:
            row = self._acquire_row(inventory.node)
        self._remove_cards(inventory.node)
        self._widen(len(inventory.cards))
        self._inventories[inventory.node] = inventory
        if any(card.is_mig_enabled or card.instance is not None for card in inventory.cards):
            self._mig_nodes.add(inventory.node)
        for position, card in enumerate(inventory.cards):
            self._positions[card.uuid] = (row, position)
        self._fill(row, inventory)
        self._cordon(row, inventory)
        self._recount(inventory.node)

    def drop_node(self, node: str) -> None:
        """Remove a node's cards. Reservations there are kept, and count again when the node returns."""
        row = self._rows.get(node)
        if row is None:
            return
        self._remove_cards(node)
        del self._inventories[node]
        self._release_row(node)

    def set_cordon(self, node: str, uuids: frozenset[str]) -> None:
        """Keep new pods from exactly these cards of a node. Pods that run there stay.

        The UUID of a card in MIG mode includes its instances.
        """
        if uuids == self._cordons.get(node, frozenset()):
            return
        self._cordons[node] = uuids
        row, inventory = self._rows.get(node), self._inventories.get(node)
        if row is not None and inventory is not None:
            self._cordon(row, inventory)
            self.changes.add(row)

    def cordon(self, node: str) -> frozenset[str]:
        """Return the cards of `node` that are kept from new pods."""
        return self._cordons.get(node, frozenset())

    def note_change(self, node: str, taken: bool) -> None:  # noqa: FBT001 -- a callback
        """Log a change outside the ledger (labels, taints, used CPU), so that cached rankings evaluate the node again.

        `taken` says that the change only takes capacity: a node that was infeasible stays infeasible.
        """
        row = self._rows.get(node)
        if row is None:
            self.changes.add_other()
        else:
            self.changes.add(row, taken=taken)

    def position(self, uuid: str) -> tuple[int, int] | None:
        """Return the row and position of a card, or None if no node has it."""
        return self._positions.get(uuid)

    def instances(self, uuid: str) -> list[tuple[int, int]]:
        """Return the row and position of each MIG instance of a physical card."""
        position = self._positions.get(uuid)
        if position is None or self.mig_roles[position] not in (MIG_ENABLED, PLUGIN_MANAGED):
            return []
        row = position[0]
        cards = self._inventories[self.node(row)].cards
        return [(row, index) for index, card in enumerate(cards) if card.parent == uuid]

    def set_rules(self, rules: SharingRules) -> None:
        """Share nodes and cards by other rules from now on. What pods hold against them they keep."""
        if rules == self.rules:
            return
        self.rules, self.has_rules = rules, rules != NO_RULES
        for node in self.nodes:
            self._recount(node)
        self.changes.reset()  # every node may take other pods now

    def follow(self, follower: Callable[[Reservation, int], None]) -> None:
        """Call `follower` from now on with each reservation that is added, and 1, or removed, and -1."""
        self._followers.append(follower)

    # ---- pods ------------------------------------------------------------------------------------------------------

    def permits(self, isolation: str, uuid: str) -> bool:
        """Whether a pod with an isolation may share a card with the pods that hold parts of it."""
        position = self._positions.get(uuid)
        if position is None or not self.rules.locks_isolation or self.isolation.permits(*position, isolation):
            return True
        return bool(self.mig_roles[position] != SHARED)

    def reservation(self, uid: str) -> Reservation | None:
        """Return what the pod with `uid` holds."""
        return self._reservations.get(uid)

    def reservations(self, node: str | None = None) -> Iterator[Reservation]:
        """Iterate over what pods hold, on `node` or on all nodes."""
        yield from (self._reservations if node is None else self._by_node.get(node, {})).values()

    def cards_of(self, reservation: Reservation) -> frozenset[int]:
        """Return the positions of the cards of its node of which a reservation takes something."""
        row = self._rows.get(reservation.node)
        return frozenset(card for card, _ in self._taken(row, reservation)) if row is not None else frozenset()

    def snapshot(self) -> dict[str, Reservation]:
        """Return all reservations of this moment, by UID; later changes do not touch them."""
        return self._reservations.copy()

    def difference(self, node: str) -> str:
        """Return how the use of the cards of a node differs from the sum of its reservations; empty if it does not."""
        row, inventory = self._rows.get(node), self._inventories.get(node)
        if row is None or inventory is None:
            return ""
        expected = [[0] * len(inventory.cards) for _ in range(DIMENSIONS)]
        for reservation in self.reservations(node):
            for position, amounts in self._taken(row, reservation):
                for dimension, amount in enumerate(amounts):
                    expected[dimension][position] += amount
        columns, lists = self.used[:, row, : len(inventory.cards)].tolist(), self.used_lists(row)
        for position, card in enumerate(inventory.cards):
            sums, *counted = ([each[position] for each in amounts] for amounts in (expected, columns, lists))
            for actual in counted:
                if actual != sums:
                    return (
                        f"card {card.uuid} of node {node}: its pods hold {sums} MiB, millicards, slots and thousandths"
                        f" of TFLOPs, the ledger has {actual}"
                    )
        fullness = self._fullness_of(row, [sum(amounts) for amounts in expected[:TFLOPS]])
        if self.fullness[row] != fullness:
            return f"node {node}: by its pods its fullness is {fullness}, the ledger has {self.fullness[row]}"
        pods = [each for each in self.reservations(node) if each.takes_place] if self.has_rules else []
        return self._differs_in_pods(row, len(pods), (held for each in pods for held in self._isolations(row, each)))

    def assume(self, uid: str, node: str, charges: Iterable[Charge]) -> None:
        """Reserve `charges` for a pod whose Binding is about to be written.

        Raises:
            AllocationError: the pod has a reservation already, or the node does not have a card.
            OverCapacityError: a card has too little free capacity, or the node has too many pods; nothing was reserved.
        """
        if uid in self._reservations:
            raise AllocationError(f"pod {uid} already holds a share on node {self._reservations[uid].node}")
        held = tuple(charges)
        tflops, states = self._check(node, held)
        self._add(Reservation(uid, node, held, True, tflops, states))  # noqa: FBT003 -- keywords take longer

    def check(self, node: str, charges: Iterable[Charge]) -> None:
        """Check whether `charges` could be reserved now.

        Raises:
            AllocationError: the node does not have a card.
            OverCapacityError: a card has too little free capacity, or the node has as many pods as it may.
        """
        self._check(node, tuple(charges))

    def _check(self, node: str, charges: tuple[Charge, ...]) -> tuple[int, bool]:
        """Check the same, and return the TFLOPs of a reservation with these charges, and whether they state any."""
        row, total, states = self._rows.get(node), 0, False
        if row is None:
            if charges:
                raise AllocationError(f"node {node} has no card {charges[0].uuid}")
            return total, states
        if self.has_rules:
            self._check_rules(node, row, charges)
        facts, (of_memory, of_cores, of_slots, of_tflops) = self.facts(row), self.used_lists(row)
        all_memory, all_cores, all_slots, all_tflops = facts.total
        for charge in charges:
            position = self._positions.get(charge.uuid)
            if position is None or position[0] != row:
                raise AllocationError(f"node {node} has no card {charge.uuid}")
            card = position[1]
            if charge.whole and of_slots[card]:
                raise OverCapacityError(f"card {charge.uuid} on node {node} is in use, so it cannot be given whole")
            tflops = charge.tflops or facts.rates[card] * charge.cores
            if (
                all_memory[card] - of_memory[card] < charge.memory_mib
                or all_cores[card] - of_cores[card] < charge.cores
                or all_slots[card] - of_slots[card] < charge.slots
                or all_tflops[card] - of_tflops[card] < tflops
            ):
                free = [*self.free(row, card)]
                raise OverCapacityError(f"card {charge.uuid} on node {node} has {free} free, not {charge}")
            total += tflops
            if charge.tflops:
                states = True
        return total, states

    def _check_rules(self, node: str, row: int, charges: tuple[Charge, ...]) -> None:
        if charges and self.is_full(row):
            raise OverCapacityError(f"node {node} has {self.pods[row]} pods with cards, the most that it may have")
        for charge in charges:
            if not self.permits(charge.isolation, charge.uuid):
                held = self.isolation.names(*self._positions[charge.uuid])
                raise OverCapacityError(
                    f"card {charge.uuid} on node {node} is locked to isolation {held}, not {charge.isolation}"
                )

    def record(self, uid: str, node: str, charges: Iterable[Charge]) -> None:
        """Record that, according to the API, a bound pod holds `charges`. That is true even beyond the capacity."""
        held, old = tuple(charges), self._reservations.get(uid)
        if old is not None and (old.node, old.charges) == (node, held):
            confirmed = msgspec.structs.replace(old, assumed=False)
            self._reservations[uid] = self._by_node[node][uid] = confirmed
            return
        if old is not None:
            self._remove(old)
        states = any(charge.tflops for charge in held)
        self._add(Reservation(uid, node, held, assumed=False, tflops=self.tflops(held), states_tflops=states))

    def release(self, uid: str) -> None:
        """Release what a pod held that is finished or deleted, or was assumed and will not be bound."""
        reservation = self._reservations.get(uid)
        if reservation is not None:
            self._remove(reservation)

    def charged(self, charge: Charge, row: int, card: int) -> Amounts:
        """Return what a charge is of a card of a row (`NodeFacts.charged`)."""
        return self.facts(row).charged(charge, card)

    def tflops(self, charges: Iterable[Charge]) -> int:
        """Return the thousandths of TFLOPs of these charges; none of a card that is not known."""
        total = 0
        for charge in charges:
            position = self._positions.get(charge.uuid)
            total += charge.tflops if position is None else self.charged(charge, *position)[TFLOPS]
        return total

    def _cordon(self, row: int, inventory: NodeInventory) -> None:
        uuids = self.cordon(inventory.node)
        self._set_cordoned(row, [card.uuid in uuids or card.parent in uuids for card in inventory.cards])

    def _recount(self, node: str) -> None:
        row = self._rows[node]
        self._clear_use(row)
        self._update_fullness(row)
        for reservation in (*self.reservations(node),):
            rated = msgspec.structs.replace(reservation, tflops=self.tflops(reservation.charges))
            self._reservations[rated.uid] = self._by_node[node][rated.uid] = rated
            self._charge(rated, 1)
            if rated != reservation:
                for follower in self._followers:
                    follower(reservation, -1)
                    follower(rated, 1)

    def _add(self, reservation: Reservation) -> None:
        self._reservations[reservation.uid] = reservation
        self._by_node.setdefault(reservation.node, {})[reservation.uid] = reservation
        self.tflops_holders += reservation.states_tflops
        self._charge(reservation, 1)
        for follower in self._followers:
            follower(reservation, 1)

    def _remove(self, reservation: Reservation) -> None:
        del self._reservations[reservation.uid]
        del self._by_node[reservation.node][reservation.uid]
        if not self._by_node[reservation.node]:
            del self._by_node[reservation.node]
        self.tflops_holders -= reservation.states_tflops
        self._charge(reservation, -1)
        for follower in self._followers:
            follower(reservation, -1)

    def _remove_cards(self, node: str) -> None:
        old = self._inventories.get(node)
        for card in old.cards if old else ():
            del self._positions[card.uuid]
        self._mig_nodes.discard(node)
        self._clear(self._rows[node])

    def _charge(self, reservation: Reservation, sign: int) -> None:
        row = self._rows.get(reservation.node)
        if row is None:
            return
        if self.has_rules and reservation.takes_place:
            self._count_pod(row, self._isolations(row, reservation), sign)
        self._add_use(row, self._taken(row, reservation), sign)
        self._update_fullness(row, taken=sign > 0)

    def _taken(self, row: int, reservation: Reservation) -> Iterator[tuple[int, Amounts]]:
        """Yield the cards of a row of which a reservation takes something, and what it takes."""
        is_mig, facts = reservation.node in self._mig_nodes, self.facts(row)
        for charge in reservation.charges:
            for uuid in (charge.uuid, charge.parent) if charge.parent else (charge.uuid,):
                position = self._positions.get(uuid)
                if position is not None and position[0] == row:
                    card = position[1]
                    yield card, facts.of_card(card) if charge.whole else facts.charged(charge, card)
            if is_mig and not charge.parent:
                # A pod under which a card was put into MIG mode may see any of its instances.
                for instance_row, card in self.instances(charge.uuid):
                    if instance_row == row:
                        yield card, facts.of_card(card)

    def _isolations(self, row: int, reservation: Reservation) -> Iterator[tuple[int, str]]:
        """Yield the cards of a row which a pod holds, or which are held for it, with its isolation."""
        for charge in reservation.charges:
            position = self._positions.get(charge.uuid)
            if position is not None and position[0] == row:
                yield position[1], charge.isolation
