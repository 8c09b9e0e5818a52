"""Who has what: every card's capacity and use, as columns.

The truth is inventory plus the allocations of live pods; the ledger is their sum, kept up to date by difference and
equal at any time to a recount. Check and reserve happen here in one synchronous step: `assume` refuses what does not
fit, so no order of calls can put a card over its capacity by an assumption.
"""

from collections.abc import Iterable, Iterator

import msgspec

from allocation.allocation import Charge
from allocation.card_table import CORES, DIVIDED, FOREIGN, MEMORY, SLOTS, CardTable
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import NodeInventory


class Holding(msgspec.Struct, frozen=True, gc=False):
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


class Ledger(CardTable):
    """Cards of all nodes and what pods hold of them."""

    def __init__(self, *, rows: int = 16, cards: int = 8) -> None:
        super().__init__(rows=rows, cards=cards)
        self._inventories: dict[str, NodeInventory] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._holdings: dict[str, Holding] = {}
        self._on_node: dict[str, dict[str, Holding]] = {}
        self._cordons: dict[str, frozenset[str]] = {}
        self._divided: set[str] = set()

    # ---- nodes -----------------------------------------------------------------------------------------------------

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
            self._positions[card.uuid] = (row, position)
        self._fill(row, inventory.cards)
        self._cordon(row, inventory)
        self._recount(inventory.node)

    def drop_node(self, node: str) -> None:
        """Forget a node's cards. Pods that hold some stay known and count again when the node returns."""
        row = self._rows.get(node)
        if row is None:
            return
        self._forget_cards(node)
        del self._inventories[node]
        self._give_row(node)

    def set_cordon(self, node: str, uuids: frozenset[str]) -> None:
        """Keep new pods from these cards of a node, and from these only. Pods that run there stay.

        A card in MIG mode stands for its instances.
        """
        if uuids == self._cordons.get(node, frozenset()):
            return
        self._cordons[node] = uuids
        row, inventory = self._rows.get(node), self._inventories.get(node)
        if row is not None and inventory is not None:
            self._cordon(row, inventory)
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
            free = self.free(*position)
            if free[MEMORY] < charge.memory_mib or free[CORES] < charge.cores or free[SLOTS] < charge.slots:
                raise OverCapacityError(f"card {charge.uuid} on node {node} has {[*free]} free, not {charge}")

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

    def _cordon(self, row: int, inventory: NodeInventory) -> None:
        uuids = self.cordon(inventory.node)
        self._set_cordoned(row, [card.uuid in uuids or card.parent in uuids for card in inventory.cards])

    def _recount(self, node: str) -> None:
        row = self._rows[node]
        self._unuse(row)
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

    def _forget_cards(self, node: str) -> None:
        old = self._inventories.get(node)
        for card in old.cards if old else ():
            del self._positions[card.uuid]
        self._divided.discard(node)
        self._clear(self._rows[node])

    def _charge(self, holding: Holding, sign: int) -> None:
        row = self._rows.get(holding.node)
        if row is None:
            return
        for charge in holding.charges:
            for uuid in (charge.uuid, charge.parent) if charge.parent else (charge.uuid,):
                position = self._positions.get(uuid)
                if position is not None and position[0] == row:
                    amounts = (sign * charge.memory_mib, sign * charge.cores, sign * charge.slots)
                    self._use(row, position[1], amounts)
        self._weigh(row, taken=sign > 0)
