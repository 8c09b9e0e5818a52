"""The GPU-hours of namespaces and queues that this replica has counted, of which `kubectl gpu report` has the sum."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from allocation.steps import Steps
from scheduler.term import LeaderTerm
from scheduler.ui.sections.rows import Keyed, fill
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER

SINCE: Final = "since"
"""The key of the row that all readers get; those of owners have a slash."""
_HOUR_SECONDS: Final = 3600


class SinceRow(msgspec.Struct, frozen=True):
    """Since when is counted, in Unix seconds: what pods held before is not known here."""

    since: int


class HoursRow(msgspec.Struct, frozen=True):
    """One owner.

    Attributes:
        namespace: empty for all owners that are beyond the bound of the count.
        queue: the GpuQueue; empty for the namespace's own queue.
        cards: what its pods hold now, in cards.
        hours: the hours of whole cards that they have held.
    """

    namespace: str
    queue: str
    cards: float
    hours: float


class Hours:
    """The owners. Numbers are rounded, so that few rows change each second."""

    def __init__(self, term: LeaderTerm, *, unix: Callable[[], float] = time.time) -> None:
        self._allocated = term.state.allocated_time
        self._since = round(unix() - self._allocated.seconds)

    def refresh(self, table: Table) -> Steps[None]:
        """Read the sums of all owners."""
        yield from fill(table, self._rows())

    def _rows(self) -> Iterator[Keyed]:
        yield SINCE, "", SinceRow(self._since)
        held = self._allocated.held
        for owner, seconds in self._allocated:
            row = HoursRow(
                owner.namespace, owner.queue, round(held.get(owner, 0.0), 2), round(seconds / _HOUR_SECONDS, 2)
            )
            yield f"{owner.namespace}/{owner.queue}", owner.namespace or CLUSTER, row
