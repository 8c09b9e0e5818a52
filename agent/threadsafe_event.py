"""An event that threads set and one coroutine waits for."""

import asyncio
from contextlib import suppress


class ThreadsafeEvent:
    """An event that any thread may set; setting it several times before a wait has the effect of setting it once."""

    def __init__(self) -> None:
        """Bind the event to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting coroutine; may be called from any thread, even after the loop has closed."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Wait until the event is set, at most `seconds`, and clear it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
