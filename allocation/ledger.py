"""Who has what: every card's capacity and use, as columns.

The truth is inventory plus the allocations of live pods; the ledger is their sum, kept up to date by difference and
equal at any time to a recount. Check and reserve happen here in one synchronous step: `assume` refuses what does not
fit, so no order of calls can put a card over its capacity by an assumption.
"""

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Charge
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import Card, NodeInventory

MEMORY, CORES, SLOTS = range(3)
DIMENSIONS = 3

Columns = NDArray[np.int64]
"""Shape (dimension, row, card): memory in MiB, compute in millicards, slots."""
Flags = NDArray[np.bool_]
"""Shape (row, card)."""
Codes = NDArray[np.int64]
"""Shape (row, card)."""


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


class Ledger:
    """Cards of all nodes and what pods hold of them.

    Attributes:
        total: capacity, shape (dimension, row, card).
        used: held by assumed and confirmed pods alike; same shape.
        present: whether a row has a card at that position; shape (row, card).
        healthy: the same for cards that new pods may use.
        cordoned: the same for cards that an administrator keeps new pods from.
        numa: the NUMA node of each card; shape (row, card).
        kinds: the position of each card's model and mode in `kind_names`; shape (row, card).
        kind_names: every model and mode that was ever reported.
    """

    def __init__(self, *, rows: int = 16, cards: int = 8) -> None:
        self.total: Columns = np.zeros((DIMENSIONS, rows, cards), np.int64)
        self.used: Columns = np.zeros((DIMENSIONS, rows, cards), np.int64)
        self.present: Flags = np.zeros((rows, cards), np.bool_)
        self.healthy: Flags = np.zeros((rows, cards), np.bool_)
        self.cordoned: Flags = np.zeros((rows, cards), np.bool_)
        self.numa: Codes = np.zeros((rows, cards), np.int64)
        self.kinds: Codes = np.zeros((rows, cards), np.int64)
        self.kind_names: list[tuple[str, str]] = []
        self._rows: dict[str, int] = {}
        self._names: list[str | None] = [None] * rows
        self._free_rows: list[int] = list(range(rows - 1, -1, -1))
        self._inventories: dict[str, NodeInventory] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._holdings: dict[str, Holding] = {}
        self._on_node: dict[str, dict[str, Holding]] = {}
        self._cordons: dict[str, frozenset[str]] = {}

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

    def inventory(self, node: str) -> NodeInventory | None:
        """Answer what `node`'s agent last reported."""
        return self._inventories.get(node)

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
        for position, card in enumerate(inventory.cards):
            self._place_card(row, position, card)
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

    def set_cordon(self, node: str, uuids: frozenset[str]) -> None:
        """Keep new pods from these cards of a node, and from these only. Pods that run there stay."""
        if uuids == self._cordons.get(node, frozenset()):
            return
        self._cordons[node] = uuids
        row, inventory = self._rows.get(node), self._inventories.get(node)
        if row is not None and inventory is not None:
            self.cordoned[row, : len(inventory.cards)] = [card.uuid in uuids for card in inventory.cards]

    def position(self, uuid: str) -> tuple[int, int] | None:
        """Answer row and card of a UUID, None where no node has it."""
        return self._positions.get(uuid)

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
            free = self.total[:, *position] - self.used[:, *position]
            if free[MEMORY] < charge.memory_mib or free[CORES] < charge.cores or free[SLOTS] < charge.slots:
                raise OverCapacityError(f"card {charge.uuid} on node {node} has {free.tolist()} free, not {charge}")

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

    def _take_row(self, node: str) -> int:
        if not self._free_rows:
            rows = len(self._names)
            self._resize(rows * 2, self.present.shape[1])
            self._names.extend([None] * rows)
            self._free_rows.extend(range(rows * 2 - 1, rows - 1, -1))
        row = self._free_rows.pop()
        self._rows[node] = row
        self._names[row] = node
        return row

    def _widen(self, cards: int) -> None:
        if cards > self.present.shape[1]:
            self._resize(len(self._names), cards)

    def _resize(self, rows: int, cards: int) -> None:
        grow = ((0, rows - self.present.shape[0]), (0, cards - self.present.shape[1]))
        self.total = np.pad(self.total, ((0, 0), *grow))
        self.used = np.pad(self.used, ((0, 0), *grow))
        self.present = np.pad(self.present, grow)
        self.healthy = np.pad(self.healthy, grow)
        self.cordoned = np.pad(self.cordoned, grow)
        self.numa = np.pad(self.numa, grow)
        self.kinds = np.pad(self.kinds, grow)

    def _place_card(self, row: int, position: int, card: Card) -> None:
        self._positions[card.uuid] = (row, position)
        self.total[:, row, position] = (card.memory_mib, card.cores, card.slots)
        self.present[row, position] = True
        self.healthy[row, position] = card.healthy
        self.cordoned[row, position] = card.uuid in self._cordons.get(self.node(row), ())
        self.numa[row, position] = card.numa
        self.kinds[row, position] = self._kind(card)

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

    def _recount(self, node: str) -> None:
        self.used[:, self._rows[node]] = 0
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
        for charge in holding.charges:
            position = self._positions.get(charge.uuid)
            if position is not None and position[0] == row:
                self.used[:, *position] += (sign * charge.memory_mib, sign * charge.cores, sign * charge.slots)
