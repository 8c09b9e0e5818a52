"""What one term of leading knows and does.

It is built anew from the API server each time, so that nothing that an earlier term assumed can live on.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from allocation.ledger import Ledger
from allocation.names import SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings
from cluster.api import Api
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import Reflector
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from scheduler.binder import Binder
from scheduler.heartbeats import Lease
from scheduler.loop import Loop
from scheduler.metrics import Metrics
from scheduler.mig_writer import WishWriter
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
        self._state = state = State(
            settings=allocation,
            queue=queue,
            clock=time.monotonic,
            aliases=settings.aliases,
            mig_wish_seconds=settings.mig_wish_seconds,
        )
        self._caches = _caches(api, state, relist_seconds=settings.relist_seconds)
        self._loop = Loop(
            api=api,
            state=state,
            binder=Binder(api, token=token, timeout_seconds=settings.request_timeout_seconds),
            recorder=recorder,
            metrics=metrics,
            concurrent_binds=settings.concurrent_binds,
            is_trusted=is_trusted,
        )
        self._wish_writer = WishWriter(api, wishes=state.wishes, queue=queue, is_trusted=is_trusted)
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
            reading = [group.create_task(cache.run()) for cache in self._caches]
            for cache in self._caches:
                await cache.synced.wait()
            log.info(
                "deciding: %d nodes with cards, %s, %d pods waiting",
                len(self._state.ledger.nodes),
                ", ".join(f"{len(cache)} {cache.plural}" for cache in self._caches),
                len(self._state.queue),
            )
            self.is_deciding = True
            reading.append(group.create_task(self._wish_writer.run()))
            await self._loop.run()
            for task in reading:
                task.cancel()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; answer whether none is left."""
        return await self._loop.drain(seconds)

    def abandon(self) -> None:
        """Give up the writes under way: the next leader finds out what became of them."""
        self._loop.abandon()


def _caches(api: Api, state: State, *, relist_seconds: float) -> "tuple[Reflector[Any], ...]":
    """Answer a cache for each kind that the state lives on."""

    def cache(
        resource: Resource,
        kind: type[Any],
        on_set: Callable[[Any, Any], None],
        on_delete: Callable[[Any], None],
        namespace: str = "",
    ) -> Reflector[Any]:
        return Reflector(
            api,
            resource,
            kind,
            on_set=on_set,
            on_delete=on_delete,
            namespace=namespace,
            relist_seconds=relist_seconds,
        )

    return (
        cache(NODES, Node, state.set_node, state.drop_node),
        cache(GPU_NODE_STATUSES, GpuNodeStatus, state.set_status, state.drop_status),
        cache(LEASES, Lease, state.set_lease, state.drop_lease, SYSTEM_NAMESPACE),
        cache(NAMESPACES, Namespace, state.set_namespace, state.drop_namespace),
        cache(RESOURCE_QUOTAS, ResourceQuota, state.set_quota, state.drop_quota),
        cache(PODS, Pod, state.set_pod, state.drop_pod),
    )
