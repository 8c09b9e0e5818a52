"""The loop and the extender of one term run, drain and end together."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from scheduler.side_by_side import LoopAndExtender


class Half:
    """One of the two: it runs until a test ends it."""

    def __init__(self, uid: str, *, drains: bool = True) -> None:
        self.being_bound = frozenset({uid})
        self.drains = drains
        self.end = asyncio.Event()
        self.is_cancelled = False
        self.is_abandoned = False

    async def run(self) -> None:
        """Wait, and note a cancellation."""
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise

    async def drain(self, _seconds: float) -> bool:
        """Return whether nothing is left to wait for."""
        return self.drains

    def abandon(self) -> None:
        """Note that the writes are cancelled."""
        self.is_abandoned = True


def both(loop: Half, extender: Half) -> LoopAndExtender:
    """Return both together."""
    return LoopAndExtender(cast("Any", loop), cast("Any", extender))


async def test_extender_ends_with_the_loop() -> None:
    """The loop notices that the replica is not trusted any more."""
    loop, extender = Half("a"), Half("b")
    running = asyncio.create_task(both(loop, extender).run())
    await asyncio.sleep(0)
    assert both(loop, extender).being_bound == {"a", "b"}
    loop.end.set()
    await running
    assert extender.is_cancelled


async def test_what_either_writes_is_waited_for_and_abandoned() -> None:
    """A hand-over to another leader depends on it."""
    for drains in ((True, True), (True, False), (False, True)):
        loop, extender = Half("a", drains=drains[0]), Half("b", drains=drains[1])
        assert await both(loop, extender).drain(1.0) is all(drains)
        both(loop, extender).abandon()
        assert (loop.is_abandoned, extender.is_abandoned) == (True, True)
