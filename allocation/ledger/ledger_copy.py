"""Some nodes of a ledger on a ledger of its own, for a hypothesis: "what if these pods were gone, these cards here".

The copied ledger stays as it is, nothing follows the copy, and its maker may change it at will.
"""

from collections.abc import Collection, Container, Sequence

import msgspec

from allocation.errors import AllocationError
from allocation.inventory import Card
from allocation.ledger.ledger import Ledger, Reservation


class LedgerCopy(Ledger):
    """The copied nodes, as they were when each was copied.

    Attributes:
        absent: the UIDs of the reservations that were not copied.
    """

    def __init__(self, *, rows: int = 16, cards: int = 8) -> None:
        """Begin without nodes, with room for `rows` of them with this number of `cards`."""
        super().__init__(rows=rows, cards=cards)
        self.absent = set[str]()
        self._left_out: dict[str, Reservation] = {}

    def add_node(self, ledger: Ledger, node: str, *, without: Container[str] = (), added: Sequence[Card] = ()) -> None:
        """Copy a node of `ledger` without the reservations of some UIDs, and with the cards `added` to its own.

        A node without an inventory stays one.
        """
        self.set_rules(ledger.rules)
        inventory = ledger.inventory(node)
        if inventory is not None:
            self.set_node(msgspec.structs.replace(inventory, cards=(*inventory.cards, *added)) if added else inventory)
        self.set_cordon(node, ledger.cordon(node))
        for each in ledger.reservations(node):
            if each.uid in without:
                self.absent.add(each.uid)
            else:
                self.record(each.uid, node, each.charges)

    def leave_out(self, uids: Collection[str]) -> None:
        """Leave out the reservations of these UIDs from now on, and no others that were left out before.

        What is tried next mostly differs in one pod from what was tried last, and costs no more than that.
        """
        for uid in [uid for uid in self._left_out if uid not in uids]:
            back = self._left_out.pop(uid)
            self.record(uid, back.node, back.charges)
        for uid in uids:
            reservation = self.reservation(uid)
            if reservation is not None:
                self._left_out[uid] = reservation
                self.release(uid)


def of_node(ledger: Ledger, node: str, *, without: Container[str] = (), added: Sequence[Card] = ()) -> LedgerCopy:
    """Return a copy of one node of `ledger`; for the rest see `LedgerCopy.add_node`."""
    copy = LedgerCopy(rows=1, cards=ledger.present.shape[1])
    copy.add_node(ledger, node, without=without, added=added)
    return copy


def used_by_pods(ledger: Ledger, node: str) -> list[list[int]]:
    """Return what pods hold of the cards of a node, by dimension and card; the node must have an inventory."""
    others = frozenset(each.uid for each in ledger.reservations(node) if not each.is_pod)
    cards = of_node(ledger, node, without=others) if others else ledger
    row = cards.row(node)
    if row is None:
        raise AllocationError(f"node {node} has no inventory")
    return [[*amounts] for amounts in cards.used_lists(row)]
