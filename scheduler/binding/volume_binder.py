"""Before a pod's Binding: its claims get their volumes on the chosen node, or everything is given back.

The scheduler only says which volume, or which node; provisioners and kube-controller-manager do the rest, and the
informers tell when. Nothing is remembered elsewhere: if this process dies in between, the next leader reads
`claimRef` and selected-node from the API server, and schedules the pod by them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from cluster.errors import ClusterError, NotFoundError
from cluster.resource import PERSISTENT_VOLUMES
from scheduler.binding import volume_steps
from scheduler.binding.binder import Result
from scheduler.binding.volume_steps import Shown, VolumeStep
from scheduler.binding.volume_writes import NotBoundError, key_of
from scheduler.cycle.result import Scheduled
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Node, Pod
from scheduler.volumes import node_affinity
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import Claim, PersistentVolume

log = logging.getLogger(__name__)


class _PodGoneError(Exception):
    """The pod is deleted, or being deleted."""


class VolumeBinder:
    """Has the volumes of pods bound, each pod within a deadline."""

    def __init__(self, fenced: FencedApi, *, shown: Shown, metrics: Metrics, timeout_seconds: float) -> None:
        """Wait `timeout_seconds` for all claims of a pod together."""
        self._fenced = fenced
        self._shown = shown
        self._metrics = metrics
        self._timeout = timeout_seconds
        self._wakeups = _Wakeups()
        self._waiting: Counter[ClaimKey] = Counter()
        """How many pods wait for each claim, which they may share."""
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_closed = False

    # ---- events of the API server ----------------------------------------------------------------------------------

    def set_claim(self, claim: Claim, _old: Claim | None = None) -> None:
        """Check the pods that wait for this claim, which changed or is gone."""
        self._wakeups.wake(key_of(claim))

    def set_volume(self, volume: PersistentVolume, _old: PersistentVolume | None = None) -> None:
        """Check the pods that wait for this volume, which changed or is gone."""
        self._wakeups.wake(volume.metadata.name)

    def drop_node(self, node: Node) -> None:
        """Check the pods that wait for volumes on this node, which is gone."""
        self._wakeups.wake(("node", node.metadata.name))

    def set_pod(self, pod: Pod, _old: Pod | None = None) -> None:
        """Check this pod, which changed or is gone."""
        self._wakeups.wake(("pod", pod.uid))

    # ---- used by the binding cycle ---------------------------------------------------------------------------------

    async def bind(self, pod: Pod, chosen: Scheduled) -> Result | None:
        """Return None once every claim of a scheduled pod has its volume, or the result if one does not get it.

        In that case everything that was written for the pod has been given back, unless it was completed before.
        """
        if not chosen.volumes:
            return None
        try:
            steps = volume_steps.steps(chosen.volumes, chosen.node, self._shown)
        except NotBoundError as error:
            return _refused(str(error))
        with self._abandonable(), self._metrics.volume_wait_seconds.time():
            result = await self._carry_out(pod, chosen.node, steps)
            if result is not None:
                await self._take_back(steps)
        return result

    def close(self) -> None:
        """Abandon the pods that wait: the next leader reads what was written for them, and continues."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def _abandonable(self) -> Iterator[None]:
        """Let `close` cancel the current task while the block runs."""
        task = asyncio.current_task()
        if task is None or self._is_closed:
            raise asyncio.CancelledError
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def _carry_out(self, pod: Pod, node: str, steps: list[VolumeStep]) -> Result | None:
        keys = [key_of(step.claim) for step in steps]
        pending = list(steps)
        self._waiting.update(keys)
        try:
            async with asyncio.timeout(self._timeout):
                for step in steps:
                    await step.write(self._fenced)
                await self._until_bound(pod, node, pending)
        except _PodGoneError:
            return Result(
                Outcome.GONE, "the pod was deleted while it waited for its volumes", reason="FailedScheduling"
            )
        except TimeoutError:
            first = pending[0]
            return _refused(
                f"claim {key_of(first.claim)}: {first.missing} within {self._timeout:g} s:"
                " `kubectl describe pvc` may show why; the pod is scheduled again"
            )
        except (NotBoundError, ClusterError) as error:
            return _refused(str(error))
        finally:
            self._waiting -= Counter(keys)
        return None

    async def _until_bound(self, pod: Pod, node: str, pending: list[VolumeStep]) -> None:
        """Return when no step is `pending` any more; informers wake this task, so that nothing is polled."""
        keys: set[Hashable] = {("pod", pod.uid), ("node", node)}
        for step in pending:
            keys.update(step.keys)
        with self._wakeups.on(*keys) as changed:
            while True:
                changed.clear()
                self._check_pod(pod)
                here = self._shown.node(node)
                if here is None:
                    raise NotBoundError(f"node {node} was deleted while pod {pod} waited for its volumes there")
                for step in tuple(pending):
                    if await self._is_bound(step, here):
                        pending.remove(step)
                if not pending:
                    return
                await changed.wait()

    def _check_pod(self, pod: Pod) -> None:
        shown = self._shown.pod(pod.metadata.name, pod.metadata.namespace)
        if shown is None or shown.uid != pod.uid or shown.metadata.deletion_timestamp:
            raise _PodGoneError

    async def _is_bound(self, step: VolumeStep, node: Node) -> bool:
        """Whether a claim has a volume that `node` can use.

        Raises:
            NotBoundError: it will not get one.
        """
        key = key_of(step.claim)
        claim = self._shown.claim(key)
        if claim is None or claim.metadata.uid != step.claim.metadata.uid or claim.metadata.deletion_timestamp:
            raise NotBoundError(f"claim {key} was deleted while its pod waited for a volume")
        if not claim.is_bound:
            step.check(self._shown, claim)
            return False
        volume = await self._volume_of(claim)
        affinity, name = node_affinity.compiled(volume), node.metadata.name
        if affinity is not None and not affinity.matches(node.metadata.labels, self._shown.migrated(name)):
            raise NotBoundError(
                f"claim {key} got PersistentVolume {claim.spec.volume_name}, which node {name} cannot use:"
                "  the pod is scheduled again, to a node that can"
            )
        return True

    async def _volume_of(self, claim: Claim) -> PersistentVolume:
        """Return the volume of a bound claim; read it if its watch is behind that of the claims."""
        name = claim.spec.volume_name
        shown = self._shown.volume(name)
        if shown is not None:
            return shown
        try:
            return await self._fenced.api.get(PERSISTENT_VOLUMES, PersistentVolume, name=name)
        except NotFoundError as error:
            raise NotBoundError(f"PersistentVolume {name} of claim {key_of(claim)} was deleted") from error

    async def _take_back(self, steps: list[VolumeStep]) -> None:
        """Take back what was written, except for claims for which another pod waits, too."""
        for step in steps:
            if self._waiting[key_of(step.claim)]:
                continue
            try:
                await step.take_back(self._fenced)
            except NotFoundError:
                continue
            except ClusterError as error:
                log.warning("claim %s: what was written for it was not taken back: %s", key_of(step.claim), error)


class _Wakeups:
    """The tasks that wait, by the keys of the objects that they wait for; a change costs only those concerned."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}

    @contextmanager
    def on(self, *keys: Hashable) -> Iterator[asyncio.Event]:
        """Yield an event that every change of one of `keys` sets while the block runs."""
        event = asyncio.Event()
        for key in keys:
            self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            for key in keys:
                events = self._waiting[key]
                events.discard(event)
                if not events:
                    del self._waiting[key]

    def wake(self, key: Hashable) -> None:
        """Wake the tasks that wait for `key`."""
        for event in self._waiting.get(key, ()):
            event.set()


def _refused(note: str) -> Result:
    return Result(Outcome.REFUSED, note, reason="FailedScheduling")
