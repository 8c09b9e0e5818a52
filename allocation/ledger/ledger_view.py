"""A ledger as if some of its reservations were gone."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import MEMORY
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.request import PodRequest
from allocation.steps import Steps


class LedgerView:
    """A ledger, or in place of some of its nodes their copies, which the view leaves as they are.

    Attributes:
        ledger: the ledger that is viewed.
        copies: the nodes that have changed by hypothesis; None if none has.
    """

    def __init__(self, ledger: Ledger, copies: Ledger | None = None) -> None:
        """View `ledger` with the nodes of `copies` in place of its own."""
        self.ledger = ledger
        self.copies = copies

    def of(self, node: str) -> Ledger:
        """Return the ledger in which the view has a node."""
        return self.copies if self.copies is not None and self.copies.row(node) is not None else self.ledger

    def parts(self, nodes: Sequence[str], *, most: int) -> Iterator[tuple[Ledger, NDArray[np.int64]]]:
        """Divide `nodes` into parts of at most `most` nodes of one ledger, given by their positions in `nodes`.

        Nodes whose rows follow one another come in one part, whatever their order: a pass over rows from the first to
        the last takes less than gathering them.
        """
        everywhere = np.arange(len(nodes))
        sources = [(self.ledger, everywhere)]
        if self.copies is not None:
            copied = self.copies.rows(nodes) >= 0
            sources = [(self.ledger, everywhere[~copied]), (self.copies, everywhere[copied])]
        for ledger, places in sources:
            ordered = places[np.argsort(ledger.rows(nodes)[places])]
            for begin in range(0, len(ordered), most):
                yield ledger, ordered[begin : begin + most]


def view(ledger: Ledger, *, without: Collection[str] = ()) -> Steps[LedgerView]:
    """Return a view of `ledger` without the reservations of some UIDs, whose nodes are copied one by one."""
    nodes = {each.node for uid in without if (each := ledger.reservation(uid)) is not None}
    if not nodes:
        return LedgerView(ledger)
    copies = LedgerCopy(cards=ledger.present.shape[1])
    for node in sorted(nodes):
        yield
        copies.add_node(ledger, node, without=without)
    return LedgerView(ledger, copies)


def lack(ledger: Ledger, node: str, request: PodRequest) -> int:
    """Return the memory in use on as many cards of a node as a pod needs at least, those with the least use."""
    row = ledger.row(node)
    if row is None:
        return 0
    count = max(container.count for container in request.gpu_containers)
    return sum(sorted(ledger.used_lists(row)[MEMORY])[:count])
