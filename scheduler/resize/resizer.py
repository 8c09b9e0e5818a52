"""Gives running pods the sizes that their users wish, one fenced write each.

The check and the charge are one synchronous step; from then on the larger of both sizes is charged, until no container
can have the old one any more. What is charged stays charged while the outcome of the write is unknown, and a write
names the version of the pod that was read: so it takes effect at most once, and never after the wish has changed.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from allocation import names
from allocation.adjustment import ScalingQuotaExceededError
from allocation.errors import AllocationError
from allocation.wire import record, resize_record
from cluster.errors import ApiError, ClusterError, NotFoundError
from cluster.events import Recorder
from cluster.resource import PODS
from scheduler.binding import conditional_patch
from scheduler.fenced_api import FencedApi
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import ResizeOutcome
from scheduler.objects import Pod
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.resize import messages, patches
from scheduler.resize.evaluation import Resize, evaluate
from scheduler.resize.live_pod import LivePod
from scheduler.resize.progress import progressed
from scheduler.resize.turns import Turns
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation

log = logging.getLogger(__name__)

PER_SECOND: Final = 10
"""Pods that are looked at, of all namespaces together."""
RETRY_SECONDS: Final = 60.0
"""After which a wish that was refused is looked at again."""
_DEADLINE_SECONDS: Final = 30.0
"""After which a write that fails again and again makes room for others of its namespace."""


class _Attempt(msgspec.Struct):
    """A size that is charged, and whose write has begun.

    Attributes:
        wish: the annotation by which it was wished.
        base: the allocation that it changes, as text.
        change: both sizes.
        sent: when the last write was sent, on the clock of this process, and `sent_before` the one before it.
    """

    wish: str
    base: str
    change: Resize
    sent: float = -math.inf
    sent_before: float = -math.inf

    @property
    def written(self) -> str:
        """The allocation that it becomes, as text."""
        return record.encode(self.change.after)


class Resizer:
    """Resizes pods for one leader, as long as it is trusted."""

    def __init__(
        self,
        fenced: FencedApi,
        *,
        state: ClusterState,
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fenced = fenced
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._turns = Turns()
        self._attempts: dict[str, _Attempt] = {}
        self._refused: dict[str, tuple[str, str, float]] = {}
        """By UID: the wish that was refused, why, and when it was last looked at."""

    # ---- events of the API server; the state has counted the pod before ----------------------------------------------

    def set_pod(self, pod: Pod, _old: Pod | None = None) -> None:
        """Note a pod that changed, if it is being resized or is to be."""
        if pod.finished or not pod.spec.node_name:
            self.drop_pod(pod)
            return
        annotations = pod.metadata.annotations
        target = self._state.resized_to.get(pod.uid)
        if target is not None and annotations.get(names.ALLOCATION) == record.encode(target):
            del self._state.resized_to[pod.uid]
        wish = annotations.get(names.RESIZE)
        if names.RESIZED in annotations or (wish is not None and self._refused.get(pod.uid, ("",))[0] != wish):
            self._turns.add(pod.metadata.namespace, pod.uid)

    def drop_pod(self, pod: Pod) -> None:
        """Forget a pod that has ended."""
        self._state.resized_to.pop(pod.uid, None)
        self._attempts.pop(pod.uid, None)
        self._refused.pop(pod.uid, None)
        self._turns.drop(pod.metadata.namespace, pod.uid)

    # ---- the task --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Resize until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        async with asyncio.TaskGroup() as group:
            while self._fenced.is_trusted:
                self._look_again()
                taken = self._turns.take()
                if taken is not None:
                    group.create_task(self._handle(*taken))
                    await asyncio.sleep(1 / PER_SECOND)
                else:
                    await self._turns.wait(1.0)

    def _look_again(self) -> None:
        now = self._clock()
        for uid, (wish, why, at) in tuple(self._refused.items()):
            if now - at < RETRY_SECONDS:
                return  # the others were looked at later
            del self._refused[uid]
            pod = self._state.running.get(uid)
            if pod is not None:
                self._refused[uid] = (wish, why, now)
                self._turns.add(pod.metadata.namespace, uid)

    async def _handle(self, namespace: str, uid: str) -> None:
        try:
            pod = self._state.running.get(uid)
            if pod is not None:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    await self.resize(pod)
        except (TimeoutError, ClusterError) as error:
            log.warning("the resize of the pod with UID %s is not finished, trying again: %s", uid, error)
            self._note(uid, self._refused.get(uid, ("", "", 0.0))[0], str(error))
        finally:
            self._turns.end(namespace)

    async def resize(self, pod: Pod) -> None:
        """Do what is to be done next for a pod: give it the size that is wished, or end the old size."""
        meta, state = pod.metadata, self._state
        try:
            live = await self._fenced.api.get(PODS, LivePod, name=meta.name, namespace=meta.namespace)
            async with state.turn:  # while others are chosen some reservations are missing for moments
                self._prepare(pod.uid, live)
            written = await conditional_patch.patch(self._fenced, PODS, live, lambda now: self._change(pod.uid, now))
        except NotFoundError:
            return  # the informer will say so
        except ApiError as error:
            attempt = self._attempts.get(pod.uid)
            if attempt is None or self._clock() < attempt.sent_before + self._fenced.timeout_seconds + 2:
                raise  # an earlier write may still take effect: what it needs stays charged
            self._undo(pod.uid)
            self._refuse(pod, attempt.wish, f"the API server refuses it: {error}")
        else:
            self._land(pod, written)

    # ---- synchronous steps -----------------------------------------------------------------------------------------

    def _prepare(self, uid: str, live: LivePod) -> None:
        """Charge a pod for the size that its annotation wishes, if it may have it."""
        pod, wish = self._current(uid, live), live.metadata.annotations.get(names.RESIZE)
        if pod is None or uid in self._attempts or wish is None:
            return
        try:
            change = evaluate(self._state, pod, live.metadata.annotations, resize_record.decode_wish(wish))
        except AllocationError as error:
            self._refuse(pod, wish, error)
            return
        self._refused.pop(uid, None)
        if change is not None:
            self._state.resized_to[uid] = change.after
            self._attempts[uid] = _Attempt(wish, live.metadata.annotations[names.ALLOCATION], change)

    def _change(self, uid: str, live: LivePod) -> dict[str, Any] | None:
        """Return what is to be written of a pod; None if nothing is."""
        if self._current(uid, live) is None:
            return None
        attempt = self._attempts.get(uid)
        return self._continue(live) if attempt is None else self._send(attempt, live)

    def _current(self, uid: str, live: LivePod) -> Pod | None:
        """Return a pod that the state counts as the API server has it; None if the informer is behind, or it ends.

        Then the informer notes it again. An attempt ends if its write has taken effect, or cannot any more, because the
        pod has changed since.
        """
        pod, annotations = self._state.running.get(uid), live.metadata.annotations
        if pod is None or live.metadata.uid != uid or live.metadata.deletion_timestamp:
            return None
        self._land(pod, live)
        attempt, allocation = self._attempts.get(uid), annotations.get(names.ALLOCATION)
        if attempt is not None and (attempt.wish, attempt.base) != (annotations.get(names.RESIZE), allocation):
            self._undo(uid)
        keys = (names.ALLOCATION, names.RESIZED)
        return pod if all(annotations.get(key) == pod.metadata.annotations.get(key) for key in keys) else None

    def _send(self, attempt: _Attempt, live: LivePod) -> dict[str, Any]:
        attempt.sent_before, attempt.sent = attempt.sent, self._clock()
        return patches.resize(live, attempt.change, token=self._fenced.token)

    def _continue(self, live: LivePod) -> dict[str, Any] | None:
        annotations = live.metadata.annotations
        try:
            resized, allocation = resize_record.resized_of(annotations), record.of_annotations(annotations)
        except AllocationError as error:
            log.warning("pod %s/%s: %s", live.metadata.namespace, live.metadata.name, error)
            return None
        if resized is None or allocation is None:
            return None
        after = progressed(resized, allocation, live)
        return None if after == resized else patches.progress(after, token=self._fenced.token)

    def _land(self, pod: Pod, live: LivePod) -> None:
        """Report an attempt whose write has taken effect; the larger size is charged until the informer shows it."""
        attempt = self._attempts.get(pod.uid)
        if attempt is not None and live.metadata.annotations.get(names.ALLOCATION) == attempt.written:
            del self._attempts[pod.uid]
            self._metrics.resizes.labels(ResizeOutcome.RESIZED.value).inc()
            note = messages.resized(attempt.change)
            log.info("pod %s: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid, "node": pod.spec.node_name})
            self._recorder.record(pod.reference, type="Normal", reason="Resized", action="Resizing", note=note)

    def _undo(self, uid: str) -> None:
        """Charge a pod for what it has, and no more for the size of an attempt that takes no effect any more."""
        self._attempts.pop(uid, None)
        self._state.resized_to.pop(uid, None)
        pod = self._state.running.get(uid)
        held = running_allocation(pod, self._state.settings) if pod is not None else None
        if pod is not None and held is not None:
            self._state.ledger.record(uid, pod.spec.node_name, held[1])
            self._state.queue.notify(ClusterEvent.POD_REMOVED)

    def _refuse(self, pod: Pod, wish: str, error: AllocationError | str) -> None:
        """Report why a pod does not get the size that is wished; once, until the wish or the reason changes."""
        is_exceeded = isinstance(error, ScalingQuotaExceededError)
        note = messages.refused(error)
        if self._note(pod.uid, wish, note):
            outcome = ResizeOutcome.EXCEEDED if is_exceeded else ResizeOutcome.REFUSED
            self._metrics.resizes.labels(outcome.value).inc()
            log.info("pod %s is not resized: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid})
            self._recorder.record(
                pod.reference,
                type="Warning",
                reason="ScalingQuotaExceeded" if is_exceeded else "ResizeRefused",
                action="Resizing",
                note=note,
            )

    def _note(self, uid: str, wish: str, why: str) -> bool:
        """Note that a wish is to be looked at again later; return whether that or the reason is new."""
        before = self._refused.pop(uid, ("", "", 0.0))
        self._refused[uid] = (wish, why, self._clock())
        return before[:2] != (wish, why)
