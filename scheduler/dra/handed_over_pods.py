"""Says of pods that are handed over to kube-scheduler that no kube-scheduler runs.

Nothing else does: a pod that no scheduler looks at has neither a condition nor an event.
"""

import asyncio
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from allocation.reasons import PodReason
from cluster.api import STRATEGIC_MERGE_PATCH
from cluster.errors import ClusterError
from cluster.events import Recorder
from cluster.metadata import timestamp, unix_seconds
from cluster.resource import PODS
from scheduler.fenced_api import FencedApi
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.objects import Pod

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 5.0
_WRITES: Final = 20
"""The most pods that are written in each period, whatever tenants create."""
_LOOKS: Final = 1000
"""The most pods that are looked at in each period."""


def note(lease: KubeSchedulerLease) -> str:
    """Return why pods that are handed over wait while no kube-scheduler runs; empty while one does."""
    if not lease.is_silent:
        return ""
    return (
        f"{PodReason.KubeSchedulerSilent.value}: no kube-scheduler places pods with resourceClaims, because none has"
        f" renewed Lease {lease.name} for more than {lease.silence:g} s: see container kube-scheduler in 'kubectl -n"
        " tranche-system get pods', and its log"
    )


class HandedOverPods:
    """Looks at the waiting pods while no kube-scheduler runs, and writes once of each why it waits.

    It goes round: a pod whose status cannot be written has its next turn after all others.
    """

    def __init__(
        self,
        fenced: FencedApi,
        *,
        pods: Mapping[str, Pod],
        lease: KubeSchedulerLease,
        recorder: Recorder,
        unix: Callable[[], float] = time.time,
    ) -> None:
        """Look at the `pods` that wait, by UID; `unix` returns the time in Unix seconds."""
        self._fenced = fenced
        self._pods = pods
        self._lease = lease
        self._recorder = recorder
        self._unix = unix
        self._written: set[str] = set()
        self._round: deque[str] = deque()
        """The UIDs of the pods that have not had their turn in this round."""

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._fenced.is_trusted:
            await self.look()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def look(self) -> None:
        """Write the reason into pods that have waited for as long as the Lease may be silent."""
        why = note(self._lease)
        if not why:
            self._written.clear()
            return
        self._written &= self._pods.keys()
        now, writes = self._unix(), 0
        for uid in itertools.islice(self._turns(), _LOOKS):
            pod = self._pods.get(uid)
            if pod is None or uid in self._written or now - _waits_since(pod) < self._lease.silence:
                continue
            await self._write(pod, why, now)
            writes += 1
            if writes == _WRITES:
                return

    def _turns(self) -> Iterator[str]:
        """Yield the UIDs of the pods whose turn it is; a new round begins with the next call after the last of them."""
        self._round = self._round or deque(self._pods)
        while self._round:
            yield self._round.popleft()

    async def _write(self, pod: Pod, why: str, now: float) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": timestamp(now),
        }
        status = {"conditions": [condition]}
        try:
            await self._fenced.patch_status(PODS, pod.metadata, status, content_type=STRATEGIC_MERGE_PATCH)
        except ClusterError as error:
            log.info("pod %s waits for a kube-scheduler, and its condition was not written: %s", pod, error)
            return
        self._written.add(pod.uid)
        self._recorder.record(pod.reference, type="Warning", reason="FilteringFailed", action="Scheduling", note=why)


def _waits_since(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return unix_seconds(created) if created is not None else math.inf
