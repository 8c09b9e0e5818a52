"""Binds to any node; where HAMi's plugin serves the node, one pod at a time, under its lock and with HAMi's handshake.

The annotations of the handshake are part of the single Binding. HAMi-core, which that plugin puts into containers,
reads integers only, so there `CUDA_VISIBLE_DEVICES` counts the container's own devices (docs/hami.md#hamis-plugin).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from allocation import names
from allocation.wire import hami
from cluster.errors import ClusterError
from scheduler.binding.binder import Binder, Result
from scheduler.binding.node_locks import NodeLocks
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from scheduler.state.plugin_nodes import PluginNodes

_CLOSED_SECONDS: Final = 20.0


class PluginBinder:
    """Writes Bindings, and locks nodes where HAMi's plugin needs it."""

    def __init__(
        self,
        binder: Binder,
        *,
        locks: NodeLocks,
        nodes: PluginNodes,
        metrics: Metrics,
        on_reopened: Callable[[], None],
    ) -> None:
        """Bind with `binder`; `on_reopened` is called when a node that could not be locked may be tried again."""
        self._binder = binder
        self._locks = locks
        self._nodes = nodes
        self._metrics = metrics
        self._on_reopened = on_reopened

    def needs_lock(self, chosen: Scheduled) -> bool:
        """Whether binding needs the lock of the node, which the plugin holds while it serves another pod."""
        return chosen.allocation is not None and self._nodes.is_hami(chosen.node)

    async def rehearse(self, pod: Pod, chosen: Scheduled) -> str:
        """Return why the API server would refuse the Binding of a scheduled pod; empty if it would not."""
        return await self._binder.rehearse(pod, chosen)

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result:
        """Write the Binding of a scheduled pod; return once its outcome is known."""
        if not self.needs_lock(chosen):
            return await self._binder.bind(pod, chosen)
        try:
            with self._metrics.lock_wait_seconds.time():
                is_taken = await self._locks.take(chosen.node, pod)
        except ClusterError as error:
            return Result(Outcome.REFUSED, self._close(chosen.node, error))
        if not is_taken:
            return Result(Outcome.REFUSED, f"HAMi's device plugin of node {chosen.node} is gone")
        result = await self._binder.bind(pod, chosen, more=handshake(chosen, unix_seconds=int(time.time())))
        if result.outcome is not Outcome.BOUND:
            self._locks.release(chosen.node, pod)
        return result

    def _close(self, node: str, error: ClusterError) -> str:
        """Close a node that cannot be locked for a while, because other nodes may fit; return the reason."""
        reason = (
            f"node {node} cannot be locked for HAMi's device plugin: {error}; apply the component manifests/hami-nodes,"
            " which grants it"
        )
        self._nodes.close(node, reason)
        asyncio.get_running_loop().call_later(_CLOSED_SECONDS, self._reopen, node)
        return reason

    def _reopen(self, node: str) -> None:
        self._nodes.reopen(node)
        self._on_reopened()


def handshake(chosen: Scheduled, *, unix_seconds: int) -> dict[str, str]:
    """Return the annotations that HAMi's plugin reads from a pod before it serves it."""
    if chosen.allocation is None:
        return {}
    return {
        # The plugin sets the limits of the containers by it; what is reserved is in HAMi's other annotation.
        names.HAMI_TO_ALLOCATE: hami.allocation_string(chosen.allocation.at_limits(), chosen.request),
        names.HAMI_BIND_PHASE: "allocating",
        names.HAMI_BIND_TIME: str(unix_seconds),
        **{
            names.environment_key("cuda-visible-devices", container): ",".join(map(str, range(len(shares))))
            for container, shares in chosen.allocation.containers.items()
        },
    }
