"""Who has how much: the queues against what they are entitled to, and the quotas of namespaces."""

import msgspec

from allocation.steps import Steps
from scheduler.term import LeaderTerm
from scheduler.ui.sections.rows import fill
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER

_OWN = "namespace/"
"""Begins the name of a namespace's own queue."""


class Queues:
    """The queues as the API has them, without the names of their pods, which other sections show."""

    def __init__(self, term: LeaderTerm) -> None:
        self._queries = term.queries

    def refresh(self, table: Table) -> Steps[None]:
        """Read all queues. The rank in the row's key order is that in which free cards are offered."""
        view = self._queries.queues()
        yield
        yield from fill(
            table,
            (
                (
                    queue.name,
                    queue.name.removeprefix(_OWN) if queue.name.startswith(_OWN) else CLUSTER,
                    _Queue(position, view.fair_sharing, msgspec.structs.replace(queue, next=())),
                )
                for position, queue in enumerate(view.queues)
            ),
        )


class Quotas:
    """The quotas as the API has them."""

    def __init__(self, term: LeaderTerm) -> None:
        self._queries = term.queries

    def refresh(self, table: Table) -> Steps[None]:
        """Read all quotas."""
        quotas = self._queries.quotas().quotas
        yield
        yield from fill(table, ((f"{each.namespace}/{each.kind}/{each.name}", each.namespace, each) for each in quotas))


class _Queue(msgspec.Struct, frozen=True, rename="camel"):
    position: int
    fair_sharing: bool
    queue: msgspec.Struct
