"""The reasons that are to be published of pods that fit nowhere; namespaces take turns, however many pods one has."""

import asyncio
from collections import OrderedDict

from scheduler.cycle.result import Unschedulable
from scheduler.queue.entry import Entry

Reasons = tuple[Entry, Unschedulable]


class ReasonQueue:
    """The last result of each pod whose reasons have not been published."""

    def __init__(self) -> None:
        self._due: OrderedDict[str, OrderedDict[str, Reasons]] = OrderedDict()
        """By namespace and UID."""
        self._changed = asyncio.Event()

    def put(self, entry: Entry, result: Unschedulable) -> None:
        """Queue the reasons of a pod to be published, in place of earlier ones that were not."""
        pods = self._due.setdefault(entry.pod.metadata.namespace, OrderedDict())
        pods[entry.pod.uid] = entry, result
        self._changed.set()

    async def get(self) -> Reasons:
        """Remove and return what is published next; wait for it."""
        while not self._due:
            self._changed.clear()
            await self._changed.wait()
        namespace, pods = self._due.popitem(last=False)
        _, reasons = pods.popitem(last=False)
        if pods:
            self._due[namespace] = pods
        return reasons
