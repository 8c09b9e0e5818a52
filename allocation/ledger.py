"""Who has what: every card's capacity and use, as columns.

The truth is inventory plus the allocations of live pods; the ledger is their sum, kept up to date by difference and
equal at any time to a recount. Check and reserve happen here in one synchronous step: `assume` refuses what does not
fit, so no order of calls can put a card over its capacity by an assumption.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Charge
from allocation.changes import Changes
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.mig import whole_mib

MEMORY, CORES, SLOTS = range(3)
DIMENSIONS = 3

Columns = NDArray[np.int64]
"""Shape (dimension, row, card): memory in MiB, compute in millicards, slots. In memory the rows of one card lie side by
side, so that sums over the cards of each node run along them."""
Sums = NDArray[np.int64]
"""Shape (dimension, row): over the cards of a node."""
Flags = NDArray[np.bool_]
"""Shape (row, card)."""
Codes = NDArray[np.int64]
"""Shape (row, card)."""

Array = TypeVar("Array", bound=NDArray[Any])

SHARED, INSTANCE, DIVIDED, FOREIGN = range(4)
"""What a card is: one that pods share, a MIG instance, a card whose instances are units of their own, and one of which
only HAMi's plugin makes instances."""


class Holding(msgspec.Struct, frozen=True):
    """What one pod has.

    Attributes:
        uid: the pod's UID.
        node: where.
        charges: per card.
        assumed: reserved by a decision whose Binding the API server has not yet shown us.
    """

    uid: str
    node: str
    charges: tuple[Charge, ...]
    assumed: bool


class Facts(msgspec.Struct, frozen=True):
    """What a node's cards are, whoever uses them: plain numbers, for who looks at one node only.

    Attributes:
        memory_mib: by card; so are the other lists.
        cores: compute in millicards.
        slots: how many containers may share it.
        usable: healthy, not cordoned, and not a card in MIG mode.
        whole_mib: what a percentage of its memory refers to.
        numa: its NUMA node.
        kinds: the position of its model and mode in `Ledger.kind_names`.
        instances: which cards are MIG instances; None where none is.
        capacity: sums of memory, compute and slots.
        mean_mib: the memory of the node's mean card.
    """

    memory_mib: list[int]
    cores: list[int]
    slots: list[int]
    usable: list[bool]
    whole_mib: list[int]
    numa: list[int]
    kinds: list[int]
    instances: list[bool] | None
    capacity: tuple[int, int, int]
    mean_mib: int


class Ledger:
    """Cards of all nodes and what pods hold of them.

    Attributes:
        total: capacity, shape (dimension, row, card).
        used: held by assumed and confirmed pods alike; same shape.
        present: whether a row has a card at that position; shape (row, card).
        healthy: the same for cards that new pods may use.
        cordoned: the same for cards that an administrator keeps new pods from.
        numa: the NUMA node of each card; shape (row, card).
        divisions: SHARED, INSTANCE, DIVIDED or FOREIGN; shape (row, card).
        whole_mib: what a percentage of a card's memory refers to; shape (row, card).
        kinds: the position of each card's model and mode in `kind_names`; shape (row, card).
        kind_names: every model and mode that was ever reported.
        capacity: the sums of `total` over a node's cards; shape (dimension, row).
        fullness: ten times the used part of each sum, added up: 0 to 30; shape (row,).
        changes: the rows in which anything changed that a decision reads.
    """

    def __init__(self, *, rows: int = 16, cards: int = 8) -> None:
        self.total: Columns = _columns(rows, cards)
        self.used: Columns = _columns(rows, cards)
        self.present: Flags = _flags(rows, cards)
        self.healthy: Flags = _flags(rows, cards)
        self.cordoned: Flags = _flags(rows, cards)
        self.numa: Codes = _codes(rows, cards)
        self.divisions: Codes = _codes(rows, cards)
        self.whole_mib: Codes = _codes(rows, cards)
        self.kinds: Codes = _codes(rows, cards)
        self.capacity: Sums = np.zeros((DIMENSIONS, rows), np.int64)
        self.fullness: NDArray[np.float64] = np.zeros(rows)
        self.changes = Changes()
        self._loads: list[list[int]] = [[0, 0, 0] for _ in range(rows)]
        self._facts: dict[int, Facts] = {}
        self._taken: dict[int, list[list[int]]] = {}
        self._order: NDArray[np.int64] | None = None
        self.kind_names: list[tuple[str, str]] = []
        self._rows: dict[str, int] = {}
        self._names: list[str | None] = [None] * rows
        self._free_rows: list[int] = list(range(rows - 1, -1, -1))
        self._inventories: dict[str, NodeInventory] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._holdings: dict[str, Holding] = {}
        self._on_node: dict[str, dict[str, Holding]] = {}
        self._cordons: dict[str, frozenset[str]] = {}
        self._divided: set[str] = set()

    # ---- nodes -----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes with an inventory."""
        return tuple(self._rows)

    def row(self, node: str) -> int | None:
        """Answer the row of `node`, None where no inventory is known."""
        return self._rows.get(node)

    def node(self, row: int) -> str:
        """Answer the node of a row in use."""
        name = self._names[row]
        if name is None:
            raise AllocationError(f"row {row} of the ledger is not in use")
        return name

    def order(self) -> NDArray[np.int64]:
        """Answer the rows in use in the order of their nodes' names."""
        if self._order is None:
            self._order = np.array([self._rows[name] for name in sorted(self._rows)], np.int64)
        return self._order

    def facts(self, row: int) -> Facts:
        """Answer what the cards of a row in use are."""
        facts = self._facts.get(row)
        if facts is None:
            facts = self._facts[row] = self._look(row)
        return facts

    def taken(self, row: int) -> list[list[int]]:
        """Answer `used` of a row in use by dimension and card, as plain numbers that belong to the ledger."""
        taken = self._taken.get(row)
        if taken is None:
            taken = self._taken[row] = self.used[:, row, : len(self.facts(row).slots)].tolist()
        return taken

    def inventory(self, node: str) -> NodeInventory | None:
        """Answer what `node`'s agent last reported."""
        return self._inventories.get(node)

    @property
    def divided(self) -> frozenset[str]:
        """The nodes that have cards in MIG mode."""
        return frozenset(self._divided)

    def set_node(self, inventory: NodeInventory) -> None:
        """Take a node's report as the new truth about its cards; what pods hold there is counted anew.

        Raises:
            AllocationError: two nodes report the same card, or a node reports one twice.
        """
        if inventory == self._inventories.get(inventory.node):
            return
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
            row = self._take_row(inventory.node)
        self._forget_cards(inventory.node)
        self._widen(len(inventory.cards))
        self._inventories[inventory.node] = inventory
        if any(card.is_divided or card.instance is not None for card in inventory.cards):
            self._divided.add(inventory.node)
        for position, card in enumerate(inventory.cards):
            self._place_card(row, position, card)
        self._divide(row, inventory)
        self.capacity[:, row] = self.total[:, row].sum(axis=1)
        self._recount(inventory.node)

    def drop_node(self, node: str) -> None:
        """Forget a node's cards. Pods that hold some stay known and count again when the node returns."""
        row = self._rows.get(node)
        if row is None:
            return
        self._forget_cards(node)
        del self._rows[node], self._inventories[node]
        self._names[row] = None
        self._free_rows.append(row)
        self._renumber()

    def set_cordon(self, node: str, uuids: frozenset[str]) -> None:
        """Keep new pods from these cards of a node, and from these only. Pods that run there stay.

        A card in MIG mode stands for its instances.
        """
        if uuids == self._cordons.get(node, frozenset()):
            return
        self._cordons[node] = uuids
        row, inventory = self._rows.get(node), self._inventories.get(node)
        if row is not None and inventory is not None:
            self.cordoned[row, : len(inventory.cards)] = [_is_one_of(card, uuids) for card in inventory.cards]
            self._facts.pop(row, None)
            self.changes.add(row)

    def cordon(self, node: str) -> frozenset[str]:
        """Answer the cards of `node` that new pods are kept from."""
        return self._cordons.get(node, frozenset())

    def note_change(self, node: str, taken: bool) -> None:  # noqa: FBT001 -- a callback
        """Log that something changed of a node which is none of the ledger's affair, but of who decides by it.

        `taken` says that a node that was no choice before is none now.
        """
        row = self._rows.get(node)
        if row is None:
            self.changes.add_other()
        else:
            self.changes.add(row, taken=taken)

    def position(self, uuid: str) -> tuple[int, int] | None:
        """Answer row and card of a UUID, None where no node has it."""
        return self._positions.get(uuid)

    def instances(self, uuid: str) -> list[tuple[int, int]]:
        """Answer row and card of each MIG instance of a physical card."""
        where = self._positions.get(uuid)
        if where is None or self.divisions[where] not in (DIVIDED, FOREIGN):
            return []
        inventory = self._inventories[self.node(where[0])]
        return [(where[0], position) for position, card in enumerate(inventory.cards) if card.parent == uuid]

    # ---- pods ------------------------------------------------------------------------------------------------------

    def holding(self, uid: str) -> Holding | None:
        """Answer what the pod with `uid` has."""
        return self._holdings.get(uid)

    def holdings(self, node: str | None = None) -> Iterator[Holding]:
        """Iterate over what pods have, on `node` or everywhere."""
        yield from (self._holdings if node is None else self._on_node.get(node, {})).values()

    def assume(self, uid: str, node: str, charges: Iterable[Charge]) -> None:
        """Reserve `charges` for a pod whose Binding is about to be written.

        Raises:
            AllocationError: the pod has a holding already, or a card is unknown on the node.
            OverCapacityError: a card has not that much free; nothing was reserved.
        """
        if uid in self._holdings:
            raise AllocationError(f"pod {uid} already holds a share on node {self._holdings[uid].node}")
        holding = Holding(uid, node, tuple(charges), assumed=True)
        self.check(node, holding.charges)
        self._add(holding)

    def check(self, node: str, charges: Iterable[Charge]) -> None:
        """Look whether `charges` could be reserved now.

        Raises:
            AllocationError: a card is unknown on the node.
            OverCapacityError: a card has not that much free.
        """
        for charge in charges:
            position = self._positions.get(charge.uuid)
            if position is None or self.node(position[0]) != node:
                raise AllocationError(f"node {node} has no card {charge.uuid}")
            free = self._free(*position)
            if free[MEMORY] < charge.memory_mib or free[CORES] < charge.cores or free[SLOTS] < charge.slots:
                raise OverCapacityError(f"card {charge.uuid} on node {node} has {free} free, not {charge}")

    def record(self, uid: str, node: str, charges: Iterable[Charge]) -> None:
        """Take from the API that a bound pod has `charges`. This is the truth, even where it is beyond capacity."""
        holding = Holding(uid, node, tuple(charges), assumed=False)
        old = self._holdings.get(uid)
        if old is not None and (old.node, old.charges) == (holding.node, holding.charges):
            self._holdings[uid] = self._on_node[node][uid] = holding
            return
        if old is not None:
            self._remove(old)
        self._add(holding)

    def forget(self, uid: str) -> None:
        """Undo an assumption whose Binding will never be. A confirmed holding stays."""
        holding = self._holdings.get(uid)
        if holding is not None and holding.assumed:
            self._remove(holding)

    def release(self, uid: str) -> None:
        """Give back what a finished or deleted pod had."""
        holding = self._holdings.get(uid)
        if holding is not None:
            self._remove(holding)

    # ---- columns ---------------------------------------------------------------------------------------------------

    def _free(self, row: int, card: int) -> list[int]:
        """Answer MiB, millicards and slots that nobody has of a card."""
        return [
            self.total.item(dimension, row, card) - self.used.item(dimension, row, card)
            for dimension in range(DIMENSIONS)
        ]

    def _take_row(self, node: str) -> int:
        if not self._free_rows:
            rows = len(self._names)
            self._resize(rows * 2, self.present.shape[1])
            self._names.extend([None] * rows)
            self._free_rows.extend(range(rows * 2 - 1, rows - 1, -1))
        row = self._free_rows.pop()
        self._rows[node] = row
        self._names[row] = node
        self._renumber()
        return row

    def _renumber(self) -> None:
        self._order = None
        self.changes.start_anew()

    def _widen(self, cards: int) -> None:
        if cards > self.present.shape[1]:
            self._resize(len(self._names), cards)

    def _resize(self, rows: int, cards: int) -> None:
        self.total = _grown(self.total, _columns(rows, cards))
        self.used = _grown(self.used, _columns(rows, cards))
        self.present = _grown(self.present, _flags(rows, cards))
        self.healthy = _grown(self.healthy, _flags(rows, cards))
        self.cordoned = _grown(self.cordoned, _flags(rows, cards))
        self.numa = _grown(self.numa, _codes(rows, cards))
        self.divisions = _grown(self.divisions, _codes(rows, cards))
        self.whole_mib = _grown(self.whole_mib, _codes(rows, cards))
        self.kinds = _grown(self.kinds, _codes(rows, cards))
        self.capacity = _grown(self.capacity, np.zeros((DIMENSIONS, rows), np.int64))
        self.fullness = _grown(self.fullness, np.zeros(rows))
        self._loads.extend([0, 0, 0] for _ in range(rows - len(self._loads)))

    def _place_card(self, row: int, position: int, card: Card) -> None:
        self._positions[card.uuid] = (row, position)
        self.total[:, row, position] = (card.memory_mib, card.cores, card.slots)
        self.present[row, position] = True
        self.healthy[row, position] = card.healthy
        self.cordoned[row, position] = _is_one_of(card, self.cordon(self.node(row)))
        self.whole_mib[row, position] = card.memory_mib
        self.numa[row, position] = card.numa
        self.kinds[row, position] = self._kind(card)

    def _divide(self, row: int, inventory: NodeInventory) -> None:
        """Mark the cards in MIG mode and their instances, which are no better than their card."""
        if inventory.node not in self._divided:
            return
        cards = {card.uuid: card for card in inventory.cards if card.is_divided}
        for position, card in enumerate(inventory.cards):
            parent = cards.get(card.parent)
            if card.is_divided:
                self.divisions[row, position] = FOREIGN if card.instances_by == "plugin" else DIVIDED
            elif card.instance is not None:
                self.divisions[row, position] = INSTANCE
                self.healthy[row, position] &= parent is not None and parent.healthy
                if parent is not None and card.instance.slices is not None:
                    self.whole_mib[row, position] = whole_mib(
                        card.memory_mib, card.instance.slices, parent.mig_profiles
                    )

    def _kind(self, card: Card) -> int:
        kind = (card.model, card.mode)
        if kind not in self.kind_names:
            self.kind_names.append(kind)
        return self.kind_names.index(kind)

    def _forget_cards(self, node: str) -> None:
        row = self._rows[node]
        old = self._inventories.get(node)
        for card in old.cards if old else ():
            del self._positions[card.uuid]
        self.total[:, row] = 0
        self.used[:, row] = 0
        self.present[row] = False
        self.healthy[row] = False
        self.cordoned[row] = False
        self.divisions[row] = SHARED
        self._divided.discard(node)
        self._facts.pop(row, None)
        self._taken.pop(row, None)

    def _look(self, row: int) -> Facts:
        count = int(self.present[row].sum())  # a node's cards stand side by side
        memory, cores, slots = self.total[:, row, :count].tolist()
        divisions = self.divisions[row, :count].tolist()
        usable = (self.healthy[row, :count] & ~self.cordoned[row, :count]).tolist()
        sums = (sum(memory), sum(cores), sum(slots))
        return Facts(
            memory_mib=memory,
            cores=cores,
            slots=slots,
            usable=[ok and what in (SHARED, INSTANCE) for ok, what in zip(usable, divisions, strict=True)],
            whole_mib=self.whole_mib[row, :count].tolist(),
            numa=self.numa[row, :count].tolist(),
            kinds=self.kinds[row, :count].tolist(),
            instances=[what == INSTANCE for what in divisions] if any(divisions) else None,
            capacity=sums,
            mean_mib=sums[MEMORY] // max(sum(amount > 0 for amount in slots), 1),
        )

    def _recount(self, node: str) -> None:
        row = self._rows[node]
        self.used[:, row] = 0
        self._loads[row] = [0, 0, 0]
        self._weigh(row)
        for holding in self.holdings(node):
            self._charge(holding, 1)

    def _add(self, holding: Holding) -> None:
        self._holdings[holding.uid] = holding
        self._on_node.setdefault(holding.node, {})[holding.uid] = holding
        self._charge(holding, 1)

    def _remove(self, holding: Holding) -> None:
        del self._holdings[holding.uid]
        del self._on_node[holding.node][holding.uid]
        if not self._on_node[holding.node]:
            del self._on_node[holding.node]
        self._charge(holding, -1)

    def _charge(self, holding: Holding, sign: int) -> None:
        row = self._rows.get(holding.node)
        if row is None:
            return
        load = self._loads[row]
        for charge in holding.charges:
            for uuid in (charge.uuid, charge.parent) if charge.parent else (charge.uuid,):
                position = self._positions.get(uuid)
                if position is not None and position[0] == row:
                    amounts = (sign * charge.memory_mib, sign * charge.cores, sign * charge.slots)
                    for dimension, amount in enumerate(amounts):
                        self.used[dimension, row, position[1]] += amount
                        load[dimension] += amount
        self._weigh(row)

    def _weigh(self, row: int, *, taken: bool = False) -> None:
        shares = [
            used / total if total else 0.0
            for used, total in zip(self._loads[row], self.facts(row).capacity, strict=True)
        ]
        self.fullness[row] = (shares[MEMORY] + shares[CORES] + shares[SLOTS]) * 10
        self._taken.pop(row, None)
        self.changes.add(row, taken=taken)


def _columns(rows: int, cards: int) -> Columns:
    return np.zeros((DIMENSIONS, cards, rows), np.int64).transpose(0, 2, 1)


def _flags(rows: int, cards: int) -> Flags:
    return np.zeros((cards, rows), np.bool_).T


def _codes(rows: int, cards: int) -> Codes:
    return np.zeros((cards, rows), np.int64).T


def _grown(old: Array, new: Array) -> Array:
    """Answer `new`, which is as large as `old` or larger, with the content of `old`."""
    new[tuple(slice(0, length) for length in old.shape)] = old
    return new


def _is_one_of(card: Card, uuids: frozenset[str]) -> bool:
    return card.uuid in uuids or card.parent in uuids
