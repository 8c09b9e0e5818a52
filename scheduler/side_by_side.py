"""The loop and the extender in one term, on one state: kube-scheduler has the pods that are handed over to it.

Both choose and reserve in one synchronous step, so neither sees the middle of what the other one does; what takes
several steps holds the locks of the state (`scheduler.state.turns`).
"""

import asyncio

from scheduler.extender.verbs import Extender
from scheduler.loop import Loop


class LoopAndExtender:
    """Schedules the pods of the queue, and those that kube-scheduler brings."""

    def __init__(self, loop: Loop, extender: Extender) -> None:
        self._loop = loop
        self._extender = extender

    @property
    def being_bound(self) -> frozenset[str]:
        """The UIDs of the pods whose Bindings are under way."""
        return self._loop.being_bound | self._extender.being_bound

    async def run(self) -> None:
        """Schedule until cancelled, or until this replica is not trusted any more, which the loop notices."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._extender.run())
            await self._loop.run()
            serving.cancel()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; return whether none is left."""
        return all(await asyncio.gather(self._loop.drain(seconds), self._extender.drain(seconds)))

    def abandon(self) -> None:
        """Cancel the writes under way."""
        self._loop.abandon()
        self._extender.abandon()
