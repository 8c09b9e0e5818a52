"""The nodes that do not belong to the ledger, as their agents report it, and those that come back to it.

A report of another allocator closes a node in the step in which it is seen, for each decision after it. What was
decided before is in the ledger until it has ended, which is when the node is drained.
"""

import asyncio
from collections.abc import Container
from typing import NamedTuple

import msgspec

from allocation.ledger.ledger import DRA_PREFIX, LEASE_PREFIX, Ledger
from cluster.gpu_node_status import Allocator, Drained, GpuNodeStatus
from scheduler.dra.allocator_rejections import RETURNING, rejection_by
from scheduler.filters.node_rejections import NodeRejections


class Drain(NamedTuple):
    """A node that is being drained, what tells this drain from others, and what is confirmed of the node now."""

    node: str
    drain: str
    version: str
    confirmed: Drained | None


class NodeAllocators:
    """The allocators of all nodes with an agent.

    Attributes:
        rejections: the rejections by nodes that do not belong to the ledger, or not yet again.
        changed: set when there may be something to confirm or to open.
    """

    def __init__(self, ledger: Ledger, *, uncounted: Container[str]) -> None:
        """Find in `ledger` what is left on a node; the nodes `uncounted` have pods that are not in it."""
        self._ledger = ledger
        self._uncounted = uncounted
        self._drains: dict[str, Drain] = {}
        self._reported: dict[str, Allocator] = {}
        self._returning: set[str] = set()
        self._unreported: set[str] = set()
        """The nodes whose report is gone, and that stay as they are."""
        self.rejections = NodeRejections()
        self.changed = asyncio.Event()

    def set_status(self, status: GpuNodeStatus) -> None:
        """Set what an agent reports; an object that has just been created says nothing yet."""
        reported = status.status
        if reported is None:
            return
        node = status.metadata.name
        self._unreported.discard(node)
        before, now = self._reported.get(node), reported.allocator or "ledger"
        if reported.allocator is msgspec.UNSET and before is None:
            return  # almost every node: it was the ledger's always
        self._reported[node] = now
        self._drains.pop(node, None)
        if now == "ledger":
            if now != before:
                self._returning.add(node)
                self.rejections.set(node, RETURNING)
        else:
            self._returning.discard(node)
            self.rejections.set(node, rejection_by(now))
            if now == "draining" and reported.drain:
                self._drains[node] = Drain(node, reported.drain, status.metadata.resource_version, status.spec.drained)
        self.changed.set()

    def drop(self, node: str) -> None:
        """Note that the report of an agent is gone.

        The node stays as it is until there is another one: its claims have their cards whether it is reported or not.
        """
        self._drains.pop(node, None)
        self._unreported.add(node)

    def drop_node(self, node: str) -> None:
        """Forget a node that does not exist any more, unless its agent reports it."""
        if node in self._unreported:
            self._unreported.discard(node)
            self._open(node)

    def drained(self) -> list[Drain]:
        """Return the nodes that are being drained and on which nothing is left that the ledger has given out."""
        return [each for each in self._drains.values() if not self._is_used(each.node)]

    @property
    def drains(self) -> bool:
        """Whether any node is being drained."""
        return bool(self._drains)

    @property
    def returning(self) -> frozenset[str]:
        """The nodes that open when they have no slice any more."""
        return frozenset(self._returning)

    def open(self, node: str) -> None:
        """Open a node that has no slice, unless another allocator was reported meanwhile."""
        if node in self._returning:
            self._returning.discard(node)
            self.rejections.set(node, None)

    def _open(self, node: str) -> None:
        self._drains.pop(node, None)
        self._reported.pop(node, None)
        self._returning.discard(node)
        self.rejections.set(node, None)

    def _is_used(self, node: str) -> bool:
        """Whether anything has cards of a node: pods, also those that are being bound, Leases, or other drivers."""
        return node in self._uncounted or any(
            each.is_pod or each.uid.startswith((LEASE_PREFIX, DRA_PREFIX)) for each in self._ledger.reservations(node)
        )
