"""Keeps the Leases of cards equal to what running pods hold, whatever crashes and lost events have left.

A Lease whose holder does not have the card is deleted: the pod has ended, or another pod has its name, or it has no
node and this term does not bind it, so an earlier term left the Lease. A Lease whose node is gone is deleted, too.
Caches only suggest: each pod is read from the API server first, and if that fails the Lease stays. A Lease that a
running pod lacks is created again, unless its node is gone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from allocation.inventory import NodeInventory
from cluster.errors import ClusterError
from scheduler.binding.lease_writes import LeaseTakenError, LeaseWrites
from scheduler.fenced_api import FencedApi
from scheduler.leases.device_lease import DeviceLease, LeasedPod, PlannedLease, planned
from scheduler.leases.device_leases import DeviceLeases
from scheduler.state.agent_leases import AgentLeases

T = TypeVar("T")

log = logging.getLogger(__name__)

SECONDS = 30.0
_STEP = 500
"""Leases that are checked before other tasks may run."""


class LeaseReconciler:
    """Deletes Leases as soon as they become unwanted, and compares all of them regularly."""

    def __init__(
        self,
        fenced: FencedApi,
        writes: LeaseWrites,
        *,
        leases: DeviceLeases,
        heartbeats: AgentLeases,
        has_node: Callable[[str], bool],
        inventory_of: Callable[[str], NodeInventory | None],
        seconds: float = SECONDS,
    ) -> None:
        """Compare every `seconds`; `has_node` returns whether a Node object exists."""
        self._fenced = fenced
        self._writes = writes
        self._leases = leases
        self._heartbeats = heartbeats
        self._has_node = has_node
        self._inventory_of = inventory_of
        self._seconds = seconds

    async def run(self) -> None:
        """Reconcile until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while self._fenced.is_trusted:
            self._leases.changed.clear()
            if loop.time() >= due:
                due = loop.time() + self._seconds
                await self.reconcile()
            else:
                await self._each(self._collect, self._leases.unwanted())
            try:
                async with asyncio.timeout_at(due):
                    await self._leases.changed.wait()
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """Compare all Leases and all pods once."""
        candidates: list[DeviceLease] = []
        for position, lease in enumerate(self._leases):
            if not self._leases.is_wanted(lease) or not self._has_node(lease.node):
                candidates.append(lease)
            if position % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        await self._each(self._collect, candidates)
        missing: list[PlannedLease] = []
        for position, pod in enumerate(self._leases.pods()):
            missing += self._missing(pod)
            if position % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        await self._each(self._restore, missing)
        for meta in self._heartbeats.superseded():
            await self._try(self._writes.delete(meta))

    def _missing(self, pod: LeasedPod) -> list[PlannedLease]:
        """Return the Leases that a running pod lacks; none if its node is gone."""
        cards = self._leases.missing(pod) if self._has_node(pod.allocation.node) else set()
        if not cards:
            return []
        return [each for each in planned(pod, self._inventory_of(pod.allocation.node)) if each.card in cards]

    async def _collect(self, lease: DeviceLease) -> None:
        await self._writes.collect(lease, is_node_gone=not self._has_node(lease.node))

    async def _restore(self, plan: PlannedLease) -> None:
        try:
            await self._writes.restore(plan)
        except LeaseTakenError as error:
            log.warning("pod %s/%s runs without a Lease of its card: %s", plan.pod.namespace, plan.pod.name, error)

    async def _each(self, write: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
        """Write some at a time; what fails is left as it is for now."""
        await self._fenced.write_each(lambda item: self._try(write(item)), items)

    async def _try(self, write: Awaitable[object]) -> None:
        try:
            await write
        except ClusterError as error:
            log.warning("a Lease is left as it is for now: %s", error)
