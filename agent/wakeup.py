"""How a thread tells the event loop that there is something new."""

import asyncio
from contextlib import suppress


class Wakeup:
    """A bell: any thread rings it, one coroutine waits for it. Several rings before a wait are one."""

    def __init__(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake who waits; may be called from any thread, also when the loop is over."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Return when it is rung, after `seconds` at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()
