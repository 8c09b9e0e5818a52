"""Makes kube-scheduler retry pods that it has rejected, and that fit now.

kube-scheduler tries a pod again that an extender rejected after events of objects that it watches itself, among them a
change of the pod. It watches no GpuClaims, GPUBindings, GpuQueues or quotas. So this process writes a condition into
the status of a pod as soon as one of the nodes that rejected the pod takes it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from allocation.names import RETRY
from cluster.api import STRATEGIC_MERGE_PATCH
from cluster.errors import ClusterError
from cluster.metadata import timestamp
from cluster.resource import PODS
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.fenced_api import FencedApi
from scheduler.objects import Pod
from scheduler.preemption.waiting_pod import WaitingPod

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 1.0
"""Also the resolution of the time in a condition: a second one that said the same would change nothing."""
_BUDGET_SECONDS: Final = 0.05
"""How long pods are evaluated in each period, whatever tenants change."""
_WRITES: Final = 20
"""The most pods that are written in each period."""


class Retries:
    """Looks at the rejected pods after changes, within a budget of time and of writes."""

    def __init__(
        self,
        fenced: FencedApi,
        *,
        rejected: RejectedPods,
        fits: Callable[[WaitingPod], Awaitable[tuple[bool, float]]],
        renewed: Callable[[], Iterable[str]],
    ) -> None:
        """Look at the pods `rejected`; `fits` returns whether a node takes a pod, and how long that took.

        `renewed` returns the UIDs of the pods for which time has passed that had to pass.
        """
        self._fenced = fenced
        self._rejected = rejected
        self._fits = fits
        self._renewed = renewed

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._fenced.is_trusted:
            await self.look()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def look(self) -> None:
        """Retry the pods that fit now; those that the budget does not reach come first next time."""
        self._rejected.wake(self._renewed())
        seconds, writes = 0.0, 0
        for each in self._rejected.changed():
            has_fit, spent = await self._fits(each)
            seconds += spent
            if has_fit:
                writes += 1
                await self._retry(each.pod)
            if seconds >= _BUDGET_SECONDS or writes >= _WRITES:
                return

    async def _retry(self, pod: Pod) -> None:
        now = timestamp(time.time())
        condition = {
            "type": RETRY,
            "status": "True",
            "reason": "Fits",
            "message": f"At {now} a node had cards for the pod, so kube-scheduler tries it again",
            "lastProbeTime": now,
        }
        status = {"conditions": [condition]}
        try:
            await self._fenced.patch_status(PODS, pod.metadata, status, content_type=STRATEGIC_MERGE_PATCH)
        except ClusterError as error:
            log.info("pod %s fits now, and kube-scheduler may not know: %s", pod, error)
            self._rejected.note_change((pod.uid,))
            return
        # kube-scheduler tries it again, unless a predicate of its own rejects the pod first.
        self._rejected.note(pod, None, since=self._rejected.changes)
        log.info("pod %s fits now: kube-scheduler tries it again", pod, extra={"pod": str(pod), "uid": pod.uid})
