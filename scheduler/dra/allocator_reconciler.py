"""Confirms that nodes are drained, for their agents, and opens nodes that DRA has given back."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from allocation import names
from cluster.api import MERGE_PATCH
from cluster.dra import ResourceSlice
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.gpu_node_status import Drained
from cluster.log_once import LogOnce
from cluster.resource import GPU_NODE_STATUSES, RESOURCE_SLICES
from scheduler.dra.node_allocators import Drain, NodeAllocators
from scheduler.fenced_api import FencedApi

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 1.0


class AllocatorReconciler:
    """The only writer of `spec.drained`, as long as this replica is trusted to lead.

    The confirmation has the leader's token: an agent accepts it only from the leader of that moment, for a later one
    may not know of the drain yet.
    """

    def __init__(self, fenced: FencedApi, allocators: NodeAllocators) -> None:
        self._fenced = fenced
        self._allocators = allocators
        self._log_once = LogOnce()

    async def run(self) -> None:
        """Reconcile until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        while self._fenced.is_trusted:
            self._allocators.changed.clear()
            await self.reconcile()
            is_waiting = self._allocators.drains or bool(self._allocators.returning)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD_SECONDS if is_waiting else None):
                    await self._allocators.changed.wait()

    async def reconcile(self) -> None:
        """Write each confirmation that is due, and look for the slice of each node that comes back."""
        token = self._fenced.token
        due = [each for each in self._allocators.drained() if each.confirmed != Drained(each.drain, token)]
        await self._fenced.write_each(self._confirm, due)
        await self._fenced.write_each(self._open, sorted(self._allocators.returning))

    async def _confirm(self, drain: Drain) -> None:
        # With the version, what the next leader has confirmed meanwhile is not overwritten.
        body = {
            "metadata": {"resourceVersion": drain.version},
            "spec": {"drained": {"drain": drain.drain, "leader": self._fenced.token}},
        }
        try:
            await self._fenced.write("PATCH", GPU_NODE_STATUSES.path(name=drain.node), body, content_type=MERGE_PATCH)
        except (ConflictError, NotFoundError):
            return  # the watch shows the current object, and the next run compares again
        except ClusterError as error:
            self._log_once.report(f"node {drain.node}", f"that it is drained was not written, trying again: {error}")
        else:
            self._log_once.report(f"node {drain.node}", "")
            log.info("node %s: no pod with cards of the ledger is left; its agent may hand it over to DRA", drain.node)

    async def _open(self, node: str) -> None:
        try:
            has_slice = await self._has_slice(node)
        except ClusterError as error:
            self._log_once.report(
                f"node {node}", f"it stays closed, because its ResourceSlice cannot be looked for: {error}"
            )
            return
        if has_slice:
            self._log_once.report(f"node {node}", "it stays closed, because its ResourceSlice is still there")
            return
        self._log_once.report(f"node {node}", "")
        self._allocators.open(node)
        log.info("node %s: it belongs to the ledger again", node)

    async def _has_slice(self, node: str) -> bool:
        """Whether a node has a slice of our driver at this moment, which no informer says."""
        name = names.resource_slice(node)
        try:
            found = await self._fenced.api.list(RESOURCE_SLICES, ResourceSlice, fieldSelector=f"metadata.name={name}")
        except NotFoundError:  # the API server has no such kind
            return False
        return any(each.metadata.name == name for each in found)
