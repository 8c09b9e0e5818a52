"""Before a pod's Binding: it gets the Lease of each of its cards, or none.

This holds for claims with cards or MIG instances of their own. No Binding of such a pod is sent before each of its
Leases was created with the token of this term, so the API server gives a card to one pod only, whatever schedulers
believe.
"""

import asyncio
import logging
from collections.abc import Callable

from allocation.inventory import NodeInventory
from cluster.errors import ClusterError
from cluster.lease import Lease
from scheduler.binding.binder import Result
from scheduler.binding.lease_writes import LeaseTakenError, LeaseWrites
from scheduler.cycle.result import Scheduled
from scheduler.leases.device_lease import LeasedPod, PlannedLease, planned
from scheduler.leases.device_leases import DeviceLeases
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Acquires the Leases of a pod before its Binding, and releases them if that fails."""

    def __init__(
        self,
        writes: LeaseWrites,
        *,
        leases: DeviceLeases,
        inventory_of: Callable[[str], NodeInventory | None],
        on_found: Callable[[Lease], object],
    ) -> None:
        """Write by `writes`; `on_found` is called with a Lease that another pod has, whose event may not have come."""
        self._writes = writes
        self._leases = leases
        self._inventory_of = inventory_of
        self._on_found = on_found

    async def acquire(self, pod: Pod, chosen: Scheduled) -> Result | None:
        """Return None once the pod holds the Lease of each card, or the result if it gets none of them.

        In that case the Leases that were created are deleted, and a card whose Lease another pod has is closed.
        """
        plan = self._plan(pod, chosen)
        if not plan:
            return None
        outcomes = await asyncio.gather(*map(self._writes.create, plan), return_exceptions=True)
        failures = [each for each in outcomes if each is not None]
        if not failures:
            return None
        await self._release(plan)
        for failure in failures:
            if not isinstance(failure, LeaseTakenError | ClusterError):
                raise failure
        taken = [failure for failure in failures if isinstance(failure, LeaseTakenError)]
        for failure in taken:
            self._on_found(failure.found)
            self._leases.close(failure.planned.name, node=chosen.node, card=failure.planned.card)
        if taken:
            return Result(Outcome.REFUSED, str(taken[0]), reason="LeaseConflict")
        return Result(Outcome.REFUSED, str(failures[0]))

    async def release(self, pod: Pod, chosen: Scheduled) -> None:
        """Delete the Leases of a pod that was not bound; what cannot be deleted now, the LeaseReconciler deletes."""
        await self._release(self._plan(pod, chosen))

    async def _release(self, plan: list[PlannedLease]) -> None:
        for failure in await asyncio.gather(*map(self._writes.release, plan), return_exceptions=True):
            if isinstance(failure, ClusterError):
                log.warning("a Lease was not deleted, trying again later: %s", failure)
            elif failure is not None:
                raise failure

    def _plan(self, pod: Pod, chosen: Scheduled) -> list[PlannedLease]:
        allocation = chosen.allocation
        if allocation is None or allocation.claim is None or not allocation.claim.is_leased:
            return []
        leased = LeasedPod(pod.metadata.namespace, pod.metadata.name, pod.uid, allocation)
        return list(planned(leased, self._inventory_of(chosen.node)))
