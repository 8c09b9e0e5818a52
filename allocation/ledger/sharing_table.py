"""What rules count beside the amounts: the pods with cards of each node, and the isolations that lock cards."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import CardTable
from allocation.ledger.isolation_locks import IsolationLocks
from allocation.sharing import NO_RULES, SharingRules


class SharingTable(CardTable):
    """The columns with these counts, which are kept only as long as rules forbid anything.

    Attributes:
        rules: how pods share nodes and cards.
        has_rules: whether they forbid anything.
        pods: how many pods hold cards of each node, or have them held; shape (row,).
        isolation: which isolation locks each card.
    """

    def __init__(self, rules: SharingRules, *, rows: int, cards: int) -> None:
        super().__init__(rows=rows, cards=cards)
        self.rules, self.has_rules = rules, rules != NO_RULES
        self.pods: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.isolation = IsolationLocks(rows=rows, cards=cards)

    def is_full(self, row: int) -> bool:
        """Whether the node of a row has as many pods with cards as it may."""
        most = self.rules.most_pods
        return most is not None and self.pods.item(row) >= most

    def _resize(self, rows: int, cards: int) -> None:
        super()._resize(rows, cards)
        self.pods = np.concatenate((self.pods, np.zeros(rows - len(self.pods), np.int64)))
        self.isolation.resize(rows, cards)

    def _clear_use(self, row: int) -> None:
        super()._clear_use(row)
        self.pods[row] = 0
        self.isolation.clear(row)

    def _count_pod(self, row: int, isolations: Iterable[tuple[int, str]], sign: int) -> None:
        """Count a pod of a node, given by the cards that it holds and its isolation; with -1 count it no more."""
        self.pods[row] += sign
        for card, isolation in isolations if self.rules.locks_isolation else ():
            self.isolation.hold(row, card, isolation, sign)

    def _differs_in_pods(self, row: int, pods: int, isolations: Iterable[tuple[int, str]]) -> str:
        """Return how the counts of a row differ from a number of `pods`, which hold cards with these `isolations`."""
        if not self.has_rules:
            return ""
        if self.pods[row] != pods:
            return f"node {self.node(row)}: it has {pods} pods with cards, the ledger has {self.pods[row]}"
        held = frozenset(isolations) if self.rules.locks_isolation else frozenset()
        for card in range(len(self.facts(row).usable)):
            expected = ", ".join(sorted(str(name) for position, name in held if position == card))
            found = self.isolation.names(row, card)
            if found != expected:
                return f"card {card} of node {self.node(row)} has isolations {expected!r}, the ledger has {found!r}"
        return ""
