"""What the pods of each namespace have reserved against what they really use, as far as the agents measure it."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.ledger.ledger import Ledger
from allocation.steps import Steps
from scheduler.api.json_names import json_name
from scheduler.measurements.use_of_shares import ShareUse
from scheduler.term import LeaderTerm
from scheduler.ui.sections.rows import fill
from scheduler.ui.table import Table

OFF: Final = "off"
"""The key of the only row if nothing is measured."""
_SECONDS: Final = 15.0
"""The agents measure this often, and are read more seldom."""
_MIB: Final = 1 << 20
_STEP: Final = 200


class Off(msgspec.Struct, frozen=True):
    """Nothing is measured."""

    off: bool = True


class UsageRow(msgspec.Struct, rename=json_name):
    """A namespace.

    Attributes:
        shares: of its pods; each pod counts once for each of its cards.
        idle: those on which no kernel has run for long.
        unknown: those of which it is not known what memory they use; they count in no sum.
        reserved_mib: the memory of the others.
        used_mib: what their processes use of it.
    """

    shares: int = 0
    idle: int = 0
    unknown: int = 0
    reserved_mib: int = 0
    used_mib: int = 0


class Usage:
    """The namespaces with pods on cards."""

    def __init__(self, term: LeaderTerm, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._use, self._ledger, self._pods = term.use, term.state.ledger, term.informers.pods
        self._clock = clock
        self._due = clock()

    def refresh(self, table: Table) -> Steps[None]:
        """Add up the shares of each namespace, if that is due again."""
        now = self._clock()
        if self._use is None:
            yield from fill(table, [(OFF, "", Off())])
            return
        if now < self._due:
            return
        self._due = now + _SECONDS
        found: defaultdict[str, UsageRow] = defaultdict(UsageRow)
        for number, pod in enumerate(tuple(self._pods), start=1):
            reservation = self._ledger.reservation(pod.uid)
            if reservation is not None:
                for charge in reservation.charges:
                    share = self._use.of(reservation.node, pod.uid, charge.uuid)
                    _count(found[pod.metadata.namespace], share, reserved_mib=_reserved(self._ledger, charge))
            if number % _STEP == 0:
                yield
        yield from fill(table, ((namespace, namespace, row) for namespace, row in found.items()))


def _count(row: UsageRow, share: ShareUse, *, reserved_mib: int) -> None:
    row.shares += 1
    row.idle += share.use == "idle"
    used = [each.memory_bytes for each in share.containers]
    known = [each for each in used if each is not None]
    if share.problem or len(known) < len(used):
        row.unknown += 1
        return
    row.reserved_mib += reserved_mib
    row.used_mib += round(sum(known) / _MIB)


def _reserved(ledger: Ledger, charge: Charge) -> int:
    """Return the MiB that a charge takes of its card."""
    position = ledger.position(charge.uuid) if charge.whole else None
    inventory = ledger.inventory(ledger.node(position[0])) if position is not None else None
    if position is None or inventory is None:
        return charge.memory_mib
    return inventory.cards[position[1]].memory_mib
