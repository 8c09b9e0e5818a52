"""What one term of leading knows and does.

It is built anew from the API server each time, so that nothing that an earlier term assumed can live on.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from allocation.ledger import Ledger
from allocation.names import SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings
from cluster.api import Api
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import Reflector
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS
from scheduler.binder import Binder
from scheduler.heartbeats import Lease
from scheduler.loop import Loop
from scheduler.metrics import Metrics
from scheduler.objects import Namespace, Node, Pod
from scheduler.queue import Queue
from scheduler.quotas import ResourceQuota
from scheduler.settings import SchedulerSettings
from scheduler.state import State

log = logging.getLogger(__name__)


class TermWork:
    """The caches, the ledger and the loop of one term.

    Attributes:
        is_deciding: whether the caches are complete and pods are being decided.
    """

    def __init__(
        self,
        *,
        api: Api,
        token: str,
        settings: SchedulerSettings,
        allocation: AllocationSettings,
        recorder: Recorder,
        metrics: Metrics,
        is_trusted: Callable[[], bool],
    ) -> None:
        queue = Queue(
            clock=time.monotonic,
            first_backoff=settings.first_backoff_seconds,
            longest_backoff=settings.longest_backoff_seconds,
        )
        self._state = state = State(settings=allocation, queue=queue, clock=time.monotonic, aliases=settings.aliases)
        relist = settings.relist_seconds
        self._nodes = Reflector(
            api, NODES, Node, on_set=state.set_node, on_delete=state.drop_node, relist_seconds=relist
        )
        self._statuses = Reflector(
            api,
            GPU_NODE_STATUSES,
            GpuNodeStatus,
            on_set=state.set_status,
            on_delete=state.drop_status,
            relist_seconds=relist,
        )
        self._leases = Reflector(
            api,
            LEASES,
            Lease,
            on_set=state.set_lease,
            on_delete=state.drop_lease,
            namespace=SYSTEM_NAMESPACE,
            relist_seconds=relist,
        )
        self._namespaces = Reflector(
            api,
            NAMESPACES,
            Namespace,
            on_set=state.set_namespace,
            on_delete=state.drop_namespace,
            relist_seconds=relist,
        )
        self._quotas = Reflector(
            api,
            RESOURCE_QUOTAS,
            ResourceQuota,
            on_set=state.set_quota,
            on_delete=state.drop_quota,
            relist_seconds=relist,
        )
        self._pods = Reflector(api, PODS, Pod, on_set=state.set_pod, on_delete=state.drop_pod, relist_seconds=relist)
        self._loop = Loop(
            api=api,
            state=state,
            binder=Binder(api, token=token, timeout_seconds=settings.request_timeout_seconds),
            recorder=recorder,
            metrics=metrics,
            concurrent_binds=settings.concurrent_binds,
            is_trusted=is_trusted,
        )
        self.is_deciding = False

    @property
    def ledger(self) -> Ledger:
        """Who has what."""
        return self._state.ledger

    async def run(self, *, wait_seconds: float) -> None:
        """Wait, read the truth, and decide until cancelled, or until the Lease is too old to be trusted.

        `wait_seconds` is for requests of a predecessor that may still be under way: what they write must be in the
        lists that are read next.
        """
        await asyncio.sleep(wait_seconds)
        async with asyncio.TaskGroup() as group:
            caches = (self._nodes, self._statuses, self._leases, self._namespaces, self._quotas, self._pods)
            reading = [group.create_task(cache.run()) for cache in caches]
            for cache in caches:
                await cache.synced.wait()
            log.info(
                "deciding: %d nodes, %d of them with cards, %d pods, %d waiting",
                len(self._nodes),
                len(self._state.ledger.nodes),
                len(self._pods),
                len(self._state.queue),
            )
            self.is_deciding = True
            await self._loop.run()
            for task in reading:
                task.cancel()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; answer whether none is left."""
        return await self._loop.drain(seconds)

    def abandon(self) -> None:
        """Give up the writes under way: the next leader finds out what became of them."""
        self._loop.abandon()
