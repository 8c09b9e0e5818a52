"""What one term of leading knows and does.

It is built anew from the API server each time, so that nothing that an earlier term assumed can live on.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from allocation.ledger import Ledger
from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings
from cluster import process
from cluster.api import Api
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import HasMeta, Reflector
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from cluster.resource_quota import ResourceQuota
from scheduler.binder import Binder
from scheduler.commitment import Committer
from scheduler.extender import Extender
from scheduler.heartbeats import Lease
from scheduler.inquiry import Inquiry
from scheduler.lock_keeper import LockKeeper
from scheduler.loop import Loop
from scheduler.metrics import Metrics
from scheduler.mig_writer import WishWriter
from scheduler.objects import Namespace, Node, Pod
from scheduler.plugin_binder import PluginBinder
from scheduler.queue import Cure, Queue
from scheduler.recount import Recounter
from scheduler.settings import SchedulerSettings
from scheduler.state import State

log = logging.getLogger(__name__)

O = TypeVar("O", bound=HasMeta)  # noqa: E741 -- O for object


class _Decider(Protocol):
    """Who takes the pods: the loop, or the verbs that kube-scheduler calls."""

    async def run(self) -> None:
        """Decide until cancelled, or until no longer trusted."""

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; answer whether none is left."""

    def abandon(self) -> None:
        """Give up the writes under way."""


class TermWork:
    """The caches, the ledger and the loop of one term.

    Attributes:
        is_deciding: whether the caches are complete and pods are being decided.
        extender: the verbs by which kube-scheduler has pods decided; None where the loop decides.
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
        names = frozenset((SCHEDULER_NAME, *settings.aliases))
        self._state = state = State(
            settings=allocation,
            queue=queue,
            clock=time.monotonic,
            names=names,
            has_queue=not settings.extender,
            mig_wish_seconds=settings.mig_wish_seconds,
        )
        self._locks = locks = LockKeeper(
            api,
            clock=time.monotonic,
            is_served=state.plugin_nodes.is_hami,
            is_ours=lambda pod: pod.spec.scheduler_name in names,
            find_pod=lambda namespace, name: pods.get(name, namespace),
        )
        set_pod, drop_pod = _each(state.set_pod, locks.set_pod), _each(state.drop_pod, locks.set_pod)
        pods = _cache(api, settings, PODS, Pod, on_set=set_pod, on_delete=drop_pod)
        self._pods = pods
        self._caches = (*_caches(api, settings, state, locks), pods)
        binder = PluginBinder(
            Binder(
                api,
                token=token,
                timeout_seconds=settings.request_timeout_seconds,
                on_trouble=lambda kind: metrics.bind_troubles.labels(kind).inc(),
            ),
            locks=locks,
            nodes=state.plugin_nodes,
            metrics=metrics,
            on_reopened=lambda: queue.wake(Cure.CAPACITY),
        )
        committer = Committer(state=state, binder=binder, recorder=recorder, metrics=metrics)
        self.extender: Extender | None = None
        self._decider: _Decider
        if settings.extender:
            self._decider = self.extender = Extender(
                api=api,
                state=state,
                pods=pods,
                committer=committer,
                metrics=metrics,
                names=names,
                is_trusted=is_trusted,
            )
        else:
            self._decider = Loop(
                api=api,
                state=state,
                committer=committer,
                recorder=recorder,
                metrics=metrics,
                concurrent_binds=settings.concurrent_binds,
                is_trusted=is_trusted,
            )
        self._wish_writer = WishWriter(api, wishes=state.wishes, queue=queue, is_trusted=is_trusted)
        self._recounter = Recounter(state=state, pods=pods, metrics=metrics, seconds=settings.recount_seconds)
        self.is_deciding = False
        metrics.terms.inc()

    @property
    def state(self) -> State:
        """What this term knows."""
        return self._state

    @property
    def locks(self) -> LockKeeper:
        """The locks of nodes that HAMi's device plugin serves."""
        return self._locks

    @property
    def inquiry(self) -> Inquiry:
        """Who answers what people ask."""
        return Inquiry(self._state, self._pods)

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
            process.settle()
            log.info(
                "deciding: %d nodes with cards, %s, %d pods waiting",
                len(self._state.ledger.nodes),
                ", ".join(f"{len(cache)} {cache.plural}" for cache in self._caches),
                len(self._state.queue),
            )
            self.is_deciding = True
            chores = (self._locks.run(), self._wish_writer.run(), self._recounter.run())
            working = [group.create_task(chore) for chore in chores]
            await self._decider.run()
            for task in (*reading, *working):
                task.cancel()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; answer whether none is left."""
        self._locks.close()
        return await self._decider.drain(seconds)

    def abandon(self) -> None:
        """Give up the writes under way: the next leader finds out what became of them."""
        self._decider.abandon()


def _caches(api: Api, settings: SchedulerSettings, state: State, locks: LockKeeper) -> "tuple[Reflector[Any], ...]":
    """Answer a cache for each kind that the state lives on beside pods."""
    set_node, drop_node = _each(state.set_node, locks.set_node), _each(state.drop_node, locks.drop_node)
    return (
        _cache(api, settings, NODES, Node, on_set=set_node, on_delete=drop_node),
        _cache(api, settings, GPU_NODE_STATUSES, GpuNodeStatus, on_set=state.set_status, on_delete=state.drop_status),
        _cache(
            api, settings, LEASES, Lease, on_set=state.set_lease, on_delete=state.drop_lease, namespace=SYSTEM_NAMESPACE
        ),
        _cache(api, settings, NAMESPACES, Namespace, on_set=state.set_namespace, on_delete=state.drop_namespace),
        _cache(api, settings, RESOURCE_QUOTAS, ResourceQuota, on_set=state.set_quota, on_delete=state.drop_quota),
    )


def _cache(
    api: Api,
    settings: SchedulerSettings,
    resource: Resource,
    kind: type[O],
    *,
    on_set: Callable[[O, O | None], None],
    on_delete: Callable[[O], None],
    namespace: str = "",
) -> Reflector[O]:
    return Reflector(
        api,
        resource,
        kind,
        on_set=on_set,
        on_delete=on_delete,
        namespace=namespace,
        relist_seconds=settings.relist_seconds,
    )


def _each(*handlers: Callable[..., None]) -> Callable[..., None]:
    """Answer a handler that tells all of `handlers`, in their order."""

    def tell(*change: Any) -> None:
        for handler in handlers:
            handler(*change)

    return tell
