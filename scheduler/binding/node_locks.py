"""Takes the locks of nodes that HAMi's plugin serves, for one pod after the other, and frees dangling locks.

Bindings to one node queue in memory. A lock stays when its pod is bound, because the plugin removes it when it has
served the pod. One task frees every dangling lock, whatever left it: a plugin that died, a pod that was deleted, or a
former leader that was killed. Each write is conditional on the version of the node, so that no newer lock is ever
overwritten.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from allocation.names import HAMI_LOCK
from cluster.errors import ClusterError, NotFoundError
from cluster.resource import NODES, PODS
from scheduler.binding import conditional_patch, node_lock
from scheduler.binding.node_lock import EXPIRY_SECONDS, NodeLock
from scheduler.fenced_api import FencedApi
from scheduler.objects import Node, NodeMeta, Pod

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class _Seen(msgspec.Struct):
    """A lock on a node, when it was first seen, and when its pod was first seen as served."""

    lock: NodeLock
    since: float
    served_at: float | None = None


class _Held(msgspec.Struct, frozen=True):
    """A lock that this process took; `uid` is empty once its pod will not be bound."""

    text: str
    uid: str


class NodeLocks:
    """The locks of all nodes, as the API server shows them, and those that this process took."""

    def __init__(
        self,
        fenced: FencedApi,
        *,
        clock: Callable[[], float],
        is_served: Callable[[str], bool],
        is_ours: Callable[[Pod], bool],
        find_pod: Callable[[str, str], Pod | None],
    ) -> None:
        """Measure ages by `clock`, in seconds.

        `is_served` returns whether HAMi's plugin is alive on a node, `is_ours` whether this scheduler binds a pod, and
        `find_pod` the pod with a namespace and a name.
        """
        self._fenced = fenced
        self._clock = clock
        self._is_served = is_served
        self._is_ours = is_ours
        self._find_pod = find_pod
        self._seen: dict[str, _Seen] = {}
        self._held: dict[str, _Held] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._changed = asyncio.Event()
        self._is_closed = False
        self.queued = 0
        """How many pods wait for their turn or for the lock of their node."""

    @property
    def ages(self) -> list[float]:
        """How many seconds ago each present lock was first seen."""
        now = self._clock()
        return [now - seen.since for seen in self._seen.values()]

    # ---- events of the API server ----------------------------------------------------------------------------------

    def set_node(self, node: Node, _old: Node | None = None) -> None:
        """Set the state of a node."""
        name, text = node.metadata.name, node.metadata.annotations.get(HAMI_LOCK, "")
        seen = self._seen.get(name)
        if not text:
            self._seen.pop(name, None)
        elif seen is None or seen.lock.text != text:
            self._seen[name] = _Seen(node_lock.read(text), self._clock())
        self._wake()

    def drop_node(self, node: Node) -> None:
        """Forget a node."""
        self._seen.pop(node.metadata.name, None)
        self._held.pop(node.metadata.name, None)
        self._wake()

    def set_pod(self, pod: Pod, _old: Pod | None = None) -> None:
        """Check the locks again if one names this pod, which changed or is gone."""
        name = (pod.metadata.namespace, pod.metadata.name)
        if any((seen.lock.namespace, seen.lock.name) == name for seen in self._seen.values()):
            self._wake()

    # ---- used by the binder ------------------------------------------------------------------------------------------

    async def take(self, node: str, pod: Pod) -> bool:
        """Wait for the pod's turn and lock the node for it; return False if no plugin serves the node any more.

        Raises:
            ClusterError: the node cannot be locked.
        """
        self.queued += 1
        try:
            async with self._turns[node]:
                return await self._take(node, pod)
        finally:
            self.queued -= 1

    async def _take(self, node: str, pod: Pod) -> bool:
        while self._is_served(node) and not self._is_closed:
            changed = self._changed
            if node in self._seen:
                await changed.wait()
                continue
            text = node_lock.write(pod, datetime.now(UTC))
            # Before the write: its watch event may arrive before its response, and must find the lock held.
            self._held[node] = _Held(text, pod.uid)
            if await self._replace(node, "", text):
                return True
        return False

    def release(self, node: str, pod: Pod) -> None:
        """Free the lock that was taken for a pod, because the pod was not bound."""
        held = self._held.get(node)
        if held is not None and held.uid == pod.uid:
            self._held[node] = _Held(held.text, "")
            self._wake()

    def close(self) -> None:
        """Take no more locks; pending calls of `take` return False."""
        self._is_closed = True
        self._wake()

    # ---- the task --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Free dangling locks until cancelled; the caches must be complete when this begins."""
        while True:
            changed, pause = self._changed, float(EXPIRY_SECONDS)
            for node, seen in tuple(self._seen.items()):
                reason = self._dangling(node, seen)
                left = self._left_to_plugin(node, seen)
                if left > 0:
                    pause = min(pause, left)
                elif reason:
                    pause = min(pause, await self._free(node, seen.lock, reason))
                else:
                    pause = min(pause, max(0.0, seen.since + EXPIRY_SECONDS - self._clock()))
            try:
                async with asyncio.timeout(pause):
                    await changed.wait()
            except TimeoutError:
                continue

    def _dangling(self, node: str, seen: _Seen) -> str:
        lock = seen.lock
        held = self._held.get(node)
        if held is not None and held.text != lock.text:
            held = None
        pod = self._find_pod(lock.namespace, lock.name) if lock.name else None
        is_ours = held is not None or (pod is not None and self._is_ours(pod))
        if held is not None and not held.uid:
            return "its pod was not bound"
        if is_ours and not self._is_served(node):
            return "HAMi's plugin does not serve the node"
        return node_lock.dangling(
            lock,
            pod,
            node=node,
            holder=held.uid if held is not None else "",
            is_ours=is_ours,
            age_seconds=self._clock() - seen.since,
        )

    def _left_to_plugin(self, node: str, seen: _Seen) -> float:
        """Return for how many seconds the plugin, which has just served the pod, may still remove the lock itself."""
        if not node_lock.is_served(self._find_pod(seen.lock.namespace, seen.lock.name), node=node):
            return 0.0
        if seen.served_at is None:
            seen.served_at = self._clock()
        return seen.served_at + node_lock.PLUGIN_SECONDS - self._clock()

    async def _free(self, node: str, lock: NodeLock, reason: str) -> float:
        """Remove a lock; return after how many seconds to check it again."""
        try:
            if lock.name and self._find_pod(lock.namespace, lock.name) is None and await self._exists(lock):
                return _RETRY_SECONDS
            if await self._replace(node, lock.text, ""):
                log.warning("node %s: lock %s is freed: %s", node, lock.text, reason)
        except NotFoundError:
            self._seen.pop(node, None)
        except ClusterError as error:
            log.warning("node %s: lock %s was not freed (%s): %s", node, lock.text, reason, error)
            return _RETRY_SECONDS
        return float(EXPIRY_SECONDS)

    async def _exists(self, lock: NodeLock) -> bool:
        """Whether a pod that the cache lacks exists: its lock may be seen before the pod."""
        try:
            await self._fenced.api.get(PODS, Pod, name=lock.name, namespace=lock.namespace)
        except NotFoundError:
            return False
        return True

    async def _replace(self, node: str, expected: str, text: str) -> bool:
        """Replace the lock `expected` of a node by `text`, empty for none; return whether the node has `text` now."""

        def change(now: Node) -> dict[str, object] | None:
            has_expected = now.metadata.annotations.get(HAMI_LOCK, "") == expected
            return {"metadata": {"annotations": {HAMI_LOCK: text or None}}} if has_expected else None

        named = Node(metadata=NodeMeta(name=node))
        now = await conditional_patch.patch(self._fenced, NODES, named, change, read_first=True)
        self.set_node(now)
        return now.metadata.annotations.get(HAMI_LOCK) == text

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
