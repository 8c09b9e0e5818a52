"""All cards in two tables by node: what they have, which rarely changes, and what of it is used.

Only the nodes are read again whose rows changed in the ledger.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.steps import Steps
from scheduler.api.json_names import json_name
from scheduler.term import LeaderTerm
from scheduler.ui.table import Table

HEALTHY: Final = 1
CORDONED: Final = 2
_STEP: Final = 50
"""Nodes that are read in one step."""
_WHOLE_EVERY: Final = 60
"""Refreshes after which all nodes are read again, for what the ledger does not log, such as what enforces limits."""
_LONGEST_REASON: Final = 300


class CardCapacity(msgspec.Struct, frozen=True, array_like=True):
    """What a card has: its index, the position of its kind in the row, MiB, millicards and slots.

    `role` is 0 for a card that pods share, 1 for a MIG instance, 2 and 3 for a card in MIG mode, of which pods get only
    instances (`allocation.ledger.card_table`).
    """

    index: int
    kind: int
    memory_mib: int
    cores: int
    slots: int
    role: int


class NodeCapacity(msgspec.Struct, frozen=True, rename=json_name):
    """The models and modes of a node's cards, the cards in order, and what can enforce limits there.

    `isolation` is None if no agent reports it.
    """

    kinds: tuple[tuple[str, str], ...]
    cards: tuple[CardCapacity, ...]
    isolation: tuple[str, ...] | None


class NodeUse(msgspec.Struct, frozen=True, rename=json_name):
    """What is used on a node.

    Attributes:
        closed: the code of why the node takes no new GPU pods; empty if it does.
        reason: the same in words.
        cordoned: whether the node is cordoned in Kubernetes.
        cards: of each card the used MiB, millicards and slots, and the flags `HEALTHY` and `CORDONED`; None if nothing
            reports the cards of the node, so that they are not known.
    """

    closed: str
    reason: str
    cordoned: bool
    cards: tuple[tuple[int, int, int, int], ...] | None


class _Nodes:
    """A table by node, of which the changed rows of the ledger are read again."""

    def __init__(self, term: LeaderTerm) -> None:
        self._state, self._informers = term.state, term.informers
        self._mark, self._refreshes = -1, 0
        self._without_cards: frozenset[str] = frozenset()

    def refresh(self, table: Table) -> Steps[None]:
        """Read the nodes that changed since the last time, and those without a row, which have no log."""
        changes, ledger = self._state.ledger.changes, self._state.ledger
        self._refreshes += 1
        is_whole = self._refreshes % _WHOLE_EVERY == 0
        mark, entries = changes.mark, None if is_whole else changes.since(self._mark)
        self._mark = -1  # if this is interrupted for good, the next time reads everything
        before, without_cards = self._without_cards, frozenset(self._find_without_cards())
        self._without_cards = without_cards
        if entries is None:
            nodes = list(ledger.nodes)
            table.retain(without_cards.union(nodes))
        else:
            nodes = [ledger.node(max(entry, ~entry)) for entry in entries]
            for node in before - without_cards:
                if ledger.row(node) is None:
                    table.remove(node)
        for number, node in enumerate((*nodes, *without_cards), start=1):
            content = self._read(node)
            if content is not None:
                table.put(node, msgspec.json.encode(content))
            if number % _STEP == 0:
                yield
        self._mark = mark

    def _find_without_cards(self) -> Iterator[str]:
        """Yield the nodes that should have cards, and of which none are known."""
        known = self._state.ledger.row
        yield from (node for node in self._state.node_problems.labelled if known(node) is None)
        yield from (node for node in self._state.closed_nodes.now() if known(node) is None)

    def _read(self, node: str) -> msgspec.Struct | None:
        """Return the row of a node; None for one that is gone since it was listed."""
        raise NotImplementedError


class Capacities(_Nodes):
    """What the cards have."""

    def _read(self, node: str) -> NodeCapacity | None:
        inventory, row = self._state.ledger.inventory(node), self._state.ledger.row(node)
        if inventory is None or row is None:
            return NodeCapacity((), (), None) if row is None else None
        roles = self._state.ledger.mig_roles[row, : len(inventory.cards)].tolist()
        kinds = list(dict.fromkeys((card.model, card.mode) for card in inventory.cards))
        cards = tuple(
            CardCapacity(
                card.index, kinds.index((card.model, card.mode)), card.memory_mib, card.cores, card.slots, role
            )
            for card, role in zip(inventory.cards, roles, strict=True)
        )
        report = self._informers.statuses.get(node)
        isolation = tuple(report.status.isolation) if report is not None and report.status is not None else None
        return NodeCapacity(tuple(kinds), cards, isolation)


class Use(_Nodes):
    """What is used of them."""

    def _read(self, node: str) -> NodeUse:
        rejection, shown = self._state.closed_nodes.now().get(node), self._informers.nodes.get(node)
        return NodeUse(
            closed=rejection.code.value if rejection is not None else "",
            reason=rejection.public_text[:_LONGEST_REASON] if rejection is not None else "",
            cordoned=shown is not None and shown.spec.unschedulable,
            cards=self._cards(node),
        )

    def _cards(self, node: str) -> tuple[tuple[int, int, int, int], ...] | None:
        ledger, row = self._state.ledger, self._state.ledger.row(node)
        if row is None:
            return None
        used = ledger.used_lists(row)
        healthy, cordoned = (flags[row, : len(used[SLOTS])].tolist() for flags in (ledger.healthy, ledger.cordoned))
        return tuple(
            (used[MEMORY][card], used[CORES][card], used[SLOTS][card], HEALTHY * is_healthy + CORDONED * is_cordoned)
            for card, (is_healthy, is_cordoned) in enumerate(zip(healthy, cordoned, strict=True))
        )
