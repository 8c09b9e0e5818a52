"""In extender mode, events on pods that wait because a DeviceClass satisfies a resource of theirs.

kube-scheduler rejects such a pod on every node before it asks the extender, if the pod requests a resource that neither
a class nor the node has, such as `nvidia.com/gpucores`. Its own reason, "cannot fit resource", names no class.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from cluster.events import Recorder
from cluster.informer import Informer
from scheduler.dra.device_classes import DeviceClasses
from scheduler.objects import Pod

_PERIOD_SECONDS: Final = 5.0
_EVENTS: Final = 20
"""The most events in each period, whatever tenants create."""
_STEP: Final = 1000
"""Pods that are looked at before the event loop may run anything else."""


class WaitingPodReporter:
    """Looks at the waiting pods while there is such a class, and says once of each why it waits."""

    def __init__(
        self,
        classes: DeviceClasses,
        *,
        pods: Informer[Pod],
        names: frozenset[str],
        recorder: Recorder,
        is_trusted: Callable[[], bool],
    ) -> None:
        """Look at the pods whose schedulerName is one of `names`."""
        self._classes = classes
        self._pods = pods
        self._names = names
        self._recorder = recorder
        self._is_trusted = is_trusted
        self._waiting: dict[str, str] = {}
        """By UID, the reason in the event of each pod that waited at the last look; empty before its event."""

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more."""
        while self._is_trusted():
            await self.look()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def look(self) -> None:
        """Write events on pods that waited at the last look already; others may be bound within this period."""
        before, self._waiting = self._waiting, {}
        if not [*self._classes]:
            return
        left = _EVENTS
        for number, pod in enumerate(self._pods):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            if pod.spec.node_name or pod.finished or pod.spec.scheduler_name not in self._names:
                continue
            conflict = self._classes.conflict(_resources(pod))
            if not conflict:
                continue
            noted = before.get(pod.uid)
            if noted is not None and noted != conflict and left:
                left -= 1
                note = f"kube-scheduler may place the pod on no node: {conflict}"
                self._recorder.record(
                    pod.reference, type="Warning", reason="DraAllocated", action="Scheduling", note=note
                )
                noted = conflict
            self._waiting[pod.uid] = noted or ""


def _resources(pod: Pod) -> set[str]:
    """Return the names of the resources that the containers of a pod request."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return {name for each in containers for name, amount in (each.resources.limits or {}).items() if amount != "0"}
