"""Single writes of the Leases of cards, one at a time for each name.

A leader creates with its token, which the fence checks, and deletes by UID and resourceVersion. So what a former leader
sends late is refused, or finds another object.
"""

import asyncio
import logging
import time
from typing import Literal
from weakref import WeakValueDictionary

from allocation.errors import AllocationError
from allocation.names import SYSTEM_NAMESPACE
from allocation.wire import record
from cluster.backoff import write_backoff
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.lease import Lease
from cluster.metadata import ObjectMeta
from cluster.resource import LEASES, PODS
from scheduler.fenced_api import FencedApi
from scheduler.leases.device_lease import DeviceLease, PlannedLease, epoch
from scheduler.leases.device_leases import DeviceLeases
from scheduler.objects import Pod

log = logging.getLogger(__name__)

Holder = Literal["holds", "unbound", "none"]
"""Whether the pod that holds a Lease has the card, or lives without a node; `none` if neither."""


class LeaseTakenError(Exception):
    """Another pod, which lives, has the Lease of a card.

    Attributes:
        planned: the Lease that was to be created.
        found: the Lease that exists.
    """

    def __init__(self, planned: PlannedLease, found: Lease) -> None:
        self.planned = planned
        self.found = found
        lease = DeviceLease.of(found)
        holder = f"pod {lease.pod_reference}" if lease is not None else found.spec.holder_identity
        super().__init__(f"Lease {SYSTEM_NAMESPACE}/{planned.name} of card {planned.card} is held by {holder}")


class LeaseWrites:
    """Creates and deletes Leases for one leader."""

    def __init__(self, fenced: FencedApi, *, leases: DeviceLeases) -> None:
        self._fenced = fenced
        self._leases = leases
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, planned: PlannedLease) -> None:
        """Return once a pod holds the Lease of a card, created with this leader's token.

        A Lease whose holder does not have the card, or that an earlier leader created for the same pod, is replaced.

        Raises:
            LeaseTakenError: another pod has the Lease.
            ApiError: the API server refuses the Lease.
        """
        backoff = write_backoff()
        async with self._lock(planned.name):
            while True:
                try:
                    if await self._try_to_create(planned):
                        return
                except ClusterError as error:
                    if not error.is_transient:
                        raise
                    log.warning("Lease %s: its state is unknown, trying again: %s", planned.name, error)
                    await asyncio.sleep(backoff.next())

    async def _try_to_create(self, planned: PlannedLease) -> bool:
        """Return whether the Lease exists as planned; if not, the next attempt may succeed."""
        try:
            await self._fenced.create(LEASES.path(namespace=SYSTEM_NAMESPACE), planned.body(unix=time.time()))
        except ConflictError:
            pass
        else:
            return True
        try:
            found = await self._fenced.api.get(LEASES, Lease, name=planned.name, namespace=SYSTEM_NAMESPACE)
        except NotFoundError:
            return False
        lease = DeviceLease.of(found)
        if lease is not None and lease.holder == planned.pod.uid:
            if (lease.token, lease.node, lease.card) == (self._fenced.token, planned.pod.allocation.node, planned.card):
                return True
        elif lease is None or not await self._is_abandoned(lease):
            raise LeaseTakenError(planned, found)
        await self._delete(lease)
        return False

    async def _is_abandoned(self, lease: DeviceLease) -> bool:
        """Whether the holder of a Lease does not have the card and will not get it, read from the API server.

        A pod without a node may still get it by a Lease of this leader, but not by that of an earlier one.
        """
        if self._leases.is_wanted(lease):
            return False
        try:
            holder = await self._holder(lease)
            return holder == "none" or (holder == "unbound" and lease.epoch < epoch(self._fenced.token))
        except ClusterError as error:
            log.warning("Lease %s is kept, because its pod cannot be read: %s", lease.name, error)
            return False

    async def release(self, planned: PlannedLease) -> None:
        """Delete the Lease of a card if the pod holds it by a Lease that this leader created.

        Raises:
            ClusterError: whether the Lease is deleted is unknown.
        """
        async with self._lock(planned.name):
            try:
                found = await self._fenced.api.get(LEASES, Lease, name=planned.name, namespace=SYSTEM_NAMESPACE)
            except NotFoundError:
                return
            lease = DeviceLease.of(found)
            if lease is not None and (lease.holder, lease.token) == (planned.pod.uid, self._fenced.token):
                await self._delete(lease)

    async def collect(self, lease: DeviceLease, *, is_node_gone: bool) -> None:
        """Delete a Lease whose holder does not have the card, or whose node does not exist, after reading the pod.

        Raises:
            ClusterError: the pod cannot be read, or whether the Lease is deleted is unknown.
        """
        async with self._lock(lease.name):
            holder = await self._holder(lease)
            is_current = self._leases.get(lease.name) is lease
            if is_current and (is_node_gone or (holder != "holds" and not self._leases.is_wanted(lease))):
                await self._delete(lease)
                log.info(
                    "deleted Lease %s: pod %s %s",
                    lease.name,
                    lease.pod_reference,
                    "does not have its card" if not is_node_gone else f"was on node {lease.node}, which is gone",
                )

    async def restore(self, planned: PlannedLease) -> None:
        """Create the Lease that a running pod lacks, after reading the pod.

        Raises:
            LeaseTakenError: another pod has the Lease.
            ClusterError: the pod cannot be read, or the API server refuses the Lease.
        """
        pod = planned.pod
        if await self._state(pod.namespace, pod.name, pod.uid, pod.allocation.node, planned.card) == "holds":
            await self.create(planned)
            log.warning("created Lease %s again, which pod %s/%s lacked", planned.name, pod.namespace, pod.name)

    async def _state(self, namespace: str, name: str, uid: str, node: str, card: str) -> Holder:
        """Read the pod that holds a Lease, or should."""
        try:
            pod = await self._fenced.api.get(PODS, Pod, name=name, namespace=namespace)
        except NotFoundError:
            return "none"
        if pod.uid != uid or pod.finished:
            return "none"
        if not pod.spec.node_name:
            return "unbound"
        try:
            allocation = record.of_annotations(pod.metadata.annotations)
        except AllocationError:
            return "holds"  # it may use any card of its node
        if allocation is None or allocation.node != node:
            return "none"
        shares = (share for shares in allocation.containers.values() for share in shares)
        return "holds" if any(share.uuid == card for share in shares) else "none"

    async def _holder(self, lease: DeviceLease) -> Holder:
        """Read the pod that holds a Lease; if nothing says which one it is, it holds the card."""
        if not lease.pod:
            return "holds"
        return await self._state(lease.namespace, lease.pod, lease.holder, lease.node, lease.card)

    async def _delete(self, lease: DeviceLease) -> None:
        """Delete a Lease as it was read; if it has changed, it stays. A Lease of a later leader is not touched."""
        if lease.epoch > epoch(self._fenced.token):
            return
        if await self.delete(ObjectMeta(lease.name, SYSTEM_NAMESPACE, lease.uid, lease.version)):
            self._leases.drop_lease(lease.name, lease.uid)

    async def delete(self, meta: ObjectMeta) -> bool:
        """Delete a Lease unless it has changed; return whether it is gone.

        Raises:
            ClusterError: whether it is deleted is unknown.
        """
        try:
            await self._fenced.delete(LEASES, meta, unchanged=True)
        except ConflictError:
            return False
        except NotFoundError:
            return True
        return True

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, which exists as long as a write holds it or waits for it."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock
