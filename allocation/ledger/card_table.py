"""Cards as columns: numpy arrays with a row per node, and the same as plain numbers for one row.

Filtering takes a few comparisons of columns. What is read for one node alone is also kept as lists, because reading
single numbers from arrays costs more than the decision itself.
"""

from collections.abc import Iterable, Sequence
from itertools import count, repeat
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.interned import Interned
from allocation.inventory import Card, NodeInventory, Platform
from allocation.ledger.changes import Changes
from allocation.mig import whole_mib
from allocation.topology.subsets import MOST_CARDS
from allocation.topology.tables import TopologyTables

MEMORY, CORES, SLOTS, TFLOPS = range(4)
DIMENSIONS = 4

Columns = NDArray[np.int64]
"""Shape (dimension, row, card): memory in MiB, compute in millicards, slots, compute in thousandths of TFLOPs. The rows
of one card are contiguous in memory, so that sums over the cards of each node run along them."""
Sums = NDArray[np.int64]
"""Shape (dimension, row): over the cards of a node."""
Flags = NDArray[np.bool_]
"""Shape (row, card)."""
Codes = NDArray[np.int64]
"""Shape (row, card)."""

Amounts = tuple[int, int, int, int]
"""MiB, millicards, slots, thousandths of TFLOPs."""

Array = TypeVar("Array", bound=NDArray[Any])

SHARED, INSTANCE, MIG_ENABLED, PLUGIN_MANAGED = range(4)
"""What a card is under MIG: a card that pods share, a MIG instance, a card in MIG mode whose instances are cards of
their own, or one in MIG mode whose instances only HAMi's plugin creates."""


class NodeFacts(msgspec.Struct, frozen=True):
    """The properties of a node's cards that do not depend on use: plain numbers, for evaluating a single node.

    Attributes:
        total: capacity by dimension and card; no TFLOPs if they are not known.
        rates: the thousandths of TFLOPs of a millicard, which are the TFLOPs of a whole card of the model.
        usable: by card, as are the other lists: healthy, not cordoned, and not a card in MIG mode.
        whole_mib: the memory that a percentage refers to.
        numa: its NUMA node.
        kinds: the position of its model and mode in `Ledger.kind_names`.
        instances: which cards are MIG instances; None if the node has no card in MIG mode.
        is_uniform: whether all cards have the same memory, compute, slots and TFLOPs.
        layout: the number of its layout in `Ledger.topology`.
        bits: the bit of each card in the layout; -1 of one that is not undivided.
        capacity: sums of memory, compute, slots and TFLOPs.
        mean_mib: the memory of the node's mean card.
    """

    total: list[list[int]]
    rates: list[int]
    usable: list[bool]
    whole_mib: list[int]
    numa: list[int]
    kinds: list[int]
    instances: list[bool] | None
    is_uniform: bool
    layout: int
    bits: list[int]
    capacity: Amounts
    mean_mib: int

    def of_card(self, card: int) -> Amounts:
        """Return the capacity of a card."""
        memory, cores, slots, tflops = self.total
        return memory[card], cores[card], slots[card], tflops[card]

    def charged(self, charge: Charge, card: int) -> Amounts:
        """Return what a charge is of a card: compute that is not requested in TFLOPs is a part of those of the card."""
        return charge.memory_mib, charge.cores, charge.slots, charge.tflops or self.rates[card] * charge.cores


class CardTable:
    """The columns, and the assignment of rows to nodes.

    Attributes:
        total: capacity, shape (dimension, row, card).
        used: amounts held by assumed and confirmed pods alike; same shape.
        present: whether a row has a card at that position; shape (row, card).
        healthy: whether new pods may use the card; same shape.
        cordoned: whether an administrator keeps new pods from the card; same shape.
        numa: the NUMA node of each card; shape (row, card).
        mig_roles: SHARED, INSTANCE, MIG_ENABLED or PLUGIN_MANAGED; shape (row, card).
        whole_mib: the memory that a percentage refers to; shape (row, card).
        kinds: the position of each card's model and mode in `kind_names`; shape (row, card).
        kind_names: every model and mode that was ever reported.
        topology: the layouts of all nodes, and the best sets of cards of each.
        layouts: the number of each node's layout in `topology`; shape (row,).
        masks: the mask of each card in its node's layout, 0 of one that is not undivided, and of all cards of a node
            with too many for tables; shape (row, card).
        platforms: the number of each node's platform in `platform_kinds`; shape (row,).
        platform_kinds: the platforms of all nodes.
        capacity: the sums of `total` over a node's cards; shape (dimension, row).
        fullness: ten times the used fraction of each sum but the TFLOPs, added up: 0 to 30; shape (row,).
        changes: the rows in which anything changed that a decision depends on.
    """

    def __init__(self, *, rows: int = 16, cards: int = 8) -> None:
        self.total: Columns = _columns(rows, cards)
        self.used: Columns = _columns(rows, cards)
        self.present: Flags = _flags(rows, cards)
        self.healthy: Flags = _flags(rows, cards)
        self.cordoned: Flags = _flags(rows, cards)
        self.numa: Codes = _codes(rows, cards)
        self.mig_roles: Codes = _codes(rows, cards)
        self.whole_mib: Codes = _codes(rows, cards)
        self.kinds: Codes = _codes(rows, cards)
        self.kind_names: list[tuple[str, str]] = []
        self.topology = TopologyTables()
        self.layouts: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.masks: Codes = _codes(rows, cards)
        self.platforms: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.platform_kinds: Interned[Platform] = Interned()
        self.capacity: Sums = np.zeros((DIMENSIONS, rows), np.int64)
        self.fullness: NDArray[np.float64] = np.zeros(rows)
        self.changes = Changes()
        self._used_sums: list[list[int]] = [[0, 0, 0] for _ in range(rows)]
        self._used_lists: dict[int, list[list[int]]] = {}
        self._facts: dict[int, NodeFacts] = {}
        self._bits: dict[int, list[int]] = {}
        self._order: NDArray[np.int64] | None = None
        self._rows: dict[str, int] = {}
        self._names = [""] * rows
        self._free_rows: list[int] = list(range(rows - 1, -1, -1))

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes with an inventory."""
        return tuple(self._rows)

    def row(self, node: str) -> int | None:
        """Return the row of `node`, or None if its inventory is unknown."""
        return self._rows.get(node)

    def rows(self, nodes: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each of `nodes`, -1 if its inventory is unknown."""
        return np.fromiter(map(self._rows.get, nodes, repeat(-1)), np.int64, len(nodes))

    def names(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the nodes of rows in use."""
        return list(map(self._names.__getitem__, rows.tolist()))

    def node(self, row: int) -> str:
        """Return the node of a row in use."""
        name = self._names[row]
        if not name:
            raise AllocationError(f"row {row} of the ledger is not in use")
        return name

    def order(self) -> NDArray[np.int64]:
        """Return the rows in use, ordered by the names of their nodes."""
        if self._order is None:
            self._order = np.array([self._rows[name] for name in sorted(self._rows)], np.int64)
        return self._order

    def facts(self, row: int) -> NodeFacts:
        """Return the properties of the cards of a row in use."""
        facts = self._facts.get(row)
        if facts is None:
            facts = self._facts[row] = self._read_facts(row)
        return facts

    def used_lists(self, row: int) -> list[list[int]]:
        """Return `used` of a row in use as plain numbers, by dimension and card. The lists belong to the ledger."""
        used = self._used_lists.get(row)
        if used is None:
            used = self._used_lists[row] = self.used[:, row, : len(self.facts(row).usable)].tolist()
        return used

    def used_sums(self, row: int) -> Sequence[int]:
        """Return the used MiB, millicards and slots of all cards of a row in use. The list belongs to the ledger."""
        return self._used_sums[row]

    def free(self, row: int, card: int) -> Amounts:
        """Return what is free of a card."""
        memory, cores, slots, tflops = self.facts(row).total
        of_memory, of_cores, of_slots, of_tflops = self.used_lists(row)
        return (
            memory[card] - of_memory[card],
            cores[card] - of_cores[card],
            slots[card] - of_slots[card],
            tflops[card] - of_tflops[card],
        )

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _acquire_row(self, node: str) -> int:
        if not self._free_rows:
            rows = len(self._names)
            self._resize(rows * 2, self.present.shape[1])
            self._names.extend([""] * rows)
            self._free_rows.extend(range(rows * 2 - 1, rows - 1, -1))
        row = self._free_rows.pop()
        self._rows[node] = row
        self._names[row] = node
        self._invalidate_rows()
        return row

    def _release_row(self, node: str) -> None:
        row = self._rows.pop(node)
        self._names[row] = ""
        self._free_rows.append(row)
        self._invalidate_rows()

    def _invalidate_rows(self) -> None:
        self._order = None
        self.changes.reset()

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
        self.mig_roles = _grown(self.mig_roles, _codes(rows, cards))
        self.whole_mib = _grown(self.whole_mib, _codes(rows, cards))
        self.kinds = _grown(self.kinds, _codes(rows, cards))
        self.layouts = _grown(self.layouts, np.zeros(rows, np.int64))
        self.masks = _grown(self.masks, _codes(rows, cards))
        self.platforms = _grown(self.platforms, np.zeros(rows, np.int64))
        self.capacity = _grown(self.capacity, np.zeros((DIMENSIONS, rows), np.int64))
        self.fullness = _grown(self.fullness, np.zeros(rows))
        self._used_sums.extend([0, 0, 0] for _ in range(rows - len(self._used_sums)))

    # ---- cards -----------------------------------------------------------------------------------------------------

    def _fill(self, row: int, inventory: NodeInventory) -> None:
        """Write the cards of a node into its row, which must be clear."""
        cards = inventory.cards
        for position, card in enumerate(cards):
            self.total[:, row, position] = (card.memory_mib, card.cores, card.slots, card.tflops * card.cores)
            self.present[row, position] = True
            self.healthy[row, position] = card.healthy
            self.whole_mib[row, position] = card.memory_mib
            self.numa[row, position] = card.numa
            self.kinds[row, position] = self._kind(card)
        if any(card.is_mig_enabled or card.instance is not None for card in cards):
            self._fill_mig(row, cards)
        self.capacity[:, row] = self.total[:, row].sum(axis=1)
        layout, self._bits[row] = inventory.layout, _bits(cards)
        self.layouts[row] = self.topology.acquire(layout)
        if len(layout) <= MOST_CARDS:
            self.masks[row, : len(cards)] = [1 << bit if bit >= 0 else 0 for bit in self._bits[row]]
        self.platforms[row] = self.platform_kinds.acquire(inventory.platform)

    def _clear(self, row: int) -> None:
        self._clear_use(row)
        self.total[:, row] = 0
        self.present[row] = False
        self.healthy[row] = False
        self.cordoned[row] = False
        self.mig_roles[row] = SHARED
        self.masks[row] = 0
        if self._bits.pop(row, None) is not None:
            self.topology.release(self.layouts.item(row))
            self.platform_kinds.release(self.platforms.item(row))
        self._facts.pop(row, None)

    def _set_cordoned(self, row: int, cordoned: Sequence[bool]) -> None:
        self.cordoned[row, : len(cordoned)] = cordoned
        self._facts.pop(row, None)

    def _fill_mig(self, row: int, cards: Sequence[Card]) -> None:
        """Mark the cards in MIG mode and their instances; an instance is healthy only if its card is."""
        parents = {card.uuid: card for card in cards if card.is_mig_enabled}
        for position, card in enumerate(cards):
            parent = parents.get(card.parent)
            if card.is_mig_enabled:
                self.mig_roles[row, position] = PLUGIN_MANAGED if card.instances_by == "plugin" else MIG_ENABLED
            elif card.instance is not None:
                self.mig_roles[row, position] = INSTANCE
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

    def _read_facts(self, row: int) -> NodeFacts:
        count = int(self.present[row].sum())  # a node's cards fill the first positions of its row
        memory, cores, slots, tflops = total = self.total[:, row, :count].tolist()
        mig_roles = self.mig_roles[row, :count].tolist()
        usable = (self.healthy[row, :count] & ~self.cordoned[row, :count]).tolist()
        sums = (sum(memory), sum(cores), sum(slots), sum(tflops))
        return NodeFacts(
            total=total,
            rates=[amount // max(compute, 1) for amount, compute in zip(tflops, cores, strict=True)],
            usable=[ok and role in (SHARED, INSTANCE) for ok, role in zip(usable, mig_roles, strict=True)],
            whole_mib=self.whole_mib[row, :count].tolist(),
            numa=self.numa[row, :count].tolist(),
            kinds=self.kinds[row, :count].tolist(),
            instances=[role == INSTANCE for role in mig_roles] if any(mig_roles) else None,
            is_uniform=len(set(zip(memory, cores, slots, tflops, strict=True))) <= 1,
            layout=self.layouts.item(row),
            bits=self._bits[row],
            capacity=sums,
            mean_mib=sums[MEMORY] // max(sum(amount > 0 for amount in slots), 1),
        )

    # ---- use -------------------------------------------------------------------------------------------------------

    def _add_use(self, row: int, taken: Iterable[tuple[int, Amounts]], sign: int) -> None:
        """Add to the used amounts of cards what is `taken`, or subtract it; the caller must call `_update_fullness`."""
        of_memory, of_cores, of_slots, of_tflops = self.used_lists(row)
        used, sums = self.used, self._used_sums[row]
        for card, (memory, cores, slots, tflops) in taken:
            of_memory[card] += sign * memory
            of_cores[card] += sign * cores
            of_slots[card] += sign * slots
            used[MEMORY, row, card], used[CORES, row, card] = of_memory[card], of_cores[card]
            used[SLOTS, row, card] = of_slots[card]
            if tflops:
                of_tflops[card] += sign * tflops
                used[TFLOPS, row, card] = of_tflops[card]
            sums[MEMORY] += sign * memory
            sums[CORES] += sign * cores
            sums[SLOTS] += sign * slots

    def _clear_use(self, row: int) -> None:
        self.used[:, row] = 0
        self._used_sums[row] = [0, 0, 0]
        self._used_lists.pop(row, None)

    def _update_fullness(self, row: int, *, taken: bool = False) -> None:
        self.fullness[row] = self._fullness_of(row, self._used_sums[row])
        self.changes.add(row, taken=taken)

    def _fullness_of(self, row: int, used: Sequence[int]) -> float:
        (memory, cores, slots), capacity = used, self.facts(row).capacity
        return (
            (memory / capacity[MEMORY] if capacity[MEMORY] else 0.0)
            + (cores / capacity[CORES] if capacity[CORES] else 0.0)
            + (slots / capacity[SLOTS] if capacity[SLOTS] else 0.0)
        ) * 10


def _bits(cards: Sequence[Card]) -> list[int]:
    """Return the bit of each card in the layout of its node, -1 of one that is not undivided."""
    bit = count()
    return [next(bit) if card.is_undivided else -1 for card in cards]


def _columns(rows: int, cards: int) -> Columns:
    return np.zeros((DIMENSIONS, cards, rows), np.int64).transpose(0, 2, 1)


def _flags(rows: int, cards: int) -> Flags:
    return np.zeros((cards, rows), np.bool_).T


def _codes(rows: int, cards: int) -> Codes:
    return np.zeros((cards, rows), np.int64).T


def _grown(old: Array, new: Array) -> Array:
    """Return `new`, which is at least as large as `old`, with the content of `old`."""
    new[tuple(slice(0, length) for length in old.shape)] = old
    return new
