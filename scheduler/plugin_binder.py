"""Binding to any node; to one that HAMi's plugin serves in its turn, under the node's lock and with HAMi's handshake.

The handshake rides on the one Binding like everything else. HAMi-core, which that plugin puts into containers, reads
integers only, so there `CUDA_VISIBLE_DEVICES` counts the container's own devices (hami.md 1.7).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from allocation import hami, names
from cluster.errors import ClusterError
from scheduler.binder import Binder, Outcome, Result
from scheduler.cycle import Chosen
from scheduler.lock_keeper import LockKeeper
from scheduler.metrics import Metrics
from scheduler.objects import Pod
from scheduler.plugin_nodes import PluginNodes

_CLOSED_SECONDS: Final = 20.0


class PluginBinder:
    """Writes Bindings, and locks nodes where that is needed."""

    def __init__(
        self,
        binder: Binder,
        *,
        locks: LockKeeper,
        nodes: PluginNodes,
        metrics: Metrics,
        on_reopened: Callable[[], None],
    ) -> None:
        """Bind by `binder`; `on_reopened` is called when a node that could not be locked may be tried again."""
        self._binder = binder
        self._locks = locks
        self._nodes = nodes
        self._metrics = metrics
        self._on_reopened = on_reopened

    def queues(self, chosen: Chosen) -> bool:
        """Whether a decision has to wait for its node's lock, which may take as long as the plugin takes."""
        return chosen.allocation is not None and self._nodes.is_hami(chosen.node)

    async def bind(self, pod: Pod, chosen: Chosen) -> Result:
        """Write the Binding of a decision; returns once its outcome is known."""
        if not self.queues(chosen):
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
            self._locks.let_go(chosen.node, pod)
        return result

    def _close(self, node: str, error: ClusterError) -> str:
        """Keep pods from a node that cannot be locked, for a while: others may fit; answer why."""
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


def handshake(chosen: Chosen, *, unix_seconds: int) -> dict[str, str]:
    """Answer what HAMi's plugin reads of a pod that it is to serve."""
    if chosen.allocation is None:
        return {}
    return {
        names.HAMI_TO_ALLOCATE: hami.allocation_string(chosen.allocation, chosen.request),
        names.HAMI_BIND_PHASE: "allocating",
        names.HAMI_BIND_TIME: str(unix_seconds),
        **{
            names.environment_key("cuda-visible-devices", container): ",".join(map(str, range(len(shares))))
            for container, shares in chosen.allocation.containers.items()
        },
    }
